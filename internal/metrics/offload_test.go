package metrics

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Without acceleration there are no values; what cannot be read is left out.
func TestOffload(t *testing.T) {
	m := New(Params{Mode: "nftables"})
	count := func() int {
		ch := make(chan prometheus.Metric, 20)
		m.offload.Collect(ch)
		return len(ch)
	}
	if n := count(); n != 0 {
		t.Errorf("%d values although it was not asked for", n)
	}
	var err error
	m.Offload(func() Offload {
		return Offload{Threshold: 20, Refused: map[string]uint64{"device": 1}, TakenErr: err, NowErr: err}
	})
	if n := count(); n != 12 {
		t.Errorf("%d values, want 12", n)
	}
	err = errors.New("no answer")
	if n := count(); n != 6 {
		t.Errorf("%d values without an answer, want 6", n)
	}
}
