package kit

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// With a round robin of two backends, two hosts that alternate must both be found to have
// reached both backends.
func TestSpreadOfARoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends := []string{"a", "b"}
		var turn atomic.Int32 // of the round robin
		ask := func() netlab.Reply {
			name := backends[turn.Add(1)%2]
			time.Sleep(2 * time.Millisecond) // the time that a request takes, by the bubble's clock
			return netlab.Reply{Outcome: netlab.Answered, Backend: name}
		}
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // so that the two hosts alternate
				e := fromExpectation{answer: answer{kind: "backends", backends: backends}}
				if err := e.spread(ask, &run{}); err != nil {
					t.Errorf("host %d: %v", i, err)
				}
			})
		}
		both.Wait()
	})
}
