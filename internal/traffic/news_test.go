package traffic

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// TestDecidedWaitsForNobody: while a scrape and an event hold both locks, the engine tells what it decided, and its messages are
// taken in, in their order, by who counts next.
func TestDecidedWaitsForNobody(t *testing.T) {
	c := New(10)
	c.mu.Lock()
	c.counting.Lock()
	told := make(chan struct{})
	go func() {
		defer close(told)
		c.NodePorts([]netip.Addr{netip.MustParseAddr("192.0.2.10")})
		c.Decided(key("web"), []model.Frontend{vip("web", "10.96.0.1:80"), frontend("web", model.FrontendKey{Port: 30080})})
		c.Decided(key("old"), []model.Frontend{vip("old", "10.96.0.2:80")})
		c.Decided(key("old"), nil)
	}()
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("it waits for a lock")
	}
	c.counting.Unlock()
	c.mu.Unlock()
	for _, to := range []string{"10.96.0.1:80", "192.0.2.10:30080", "192.0.2.11:30080", "10.96.0.2:80"} {
		c.connect(to, "10.1.0.1:8080", 1)
	}
	if got := connections(c.Rows(time.Time{})); got["web"] != 2 || got["old"] != 0 || got[""] != 0 {
		t.Errorf("%v", got)
	}
}

// TestNewsIsTakenInWithoutTraffic: the bell rings for each, and nothing is kept of what Settle took in.
func TestNewsIsTakenInWithoutTraffic(t *testing.T) {
	c := New(10)
	for range 3 {
		for n := range 100 {
			c.Decided(key(fmt.Sprint(n)), []model.Frontend{vip(fmt.Sprint(n), "10.96.0.1:80")})
		}
		select {
		case <-c.News():
		default:
			t.Fatal("nothing rings")
		}
		if c.Settle(); c.newest.Load() != nil {
			t.Fatal("messages are left")
		}
	}
}

// TestDecidedBesideTraffic: nothing that is told is lost, however many tell and count at once.
func TestDecidedBesideTraffic(t *testing.T) {
	const each = 200
	c := New(1000)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range each {
				name, to := fmt.Sprintf("s%d-%d", n, i), fmt.Sprintf("10.96.%d.%d:80", n, i)
				c.Decided(key(name), []model.Frontend{vip(name, to)})
				c.connect(to, "10.1.0.1:8080", 1)
			}
		})
		all.Go(func() {
			for range each {
				c.Settle()
				c.Rows(time.Time{})
			}
		})
	}
	all.Wait()
	got := connections(c.Rows(time.Time{}))
	if len(got) != 4*each+1 {
		t.Fatalf("%d rows, want %d", len(got), 4*each+1)
	}
	for name, n := range got {
		if name != "" && n != 1 {
			t.Errorf("%s has %d", name, n)
		}
	}
}

// TestTellersAtOnce: of two who tell at the same moment none takes the other's message away. Many tell very often, so that
// two meet.
func TestTellersAtOnce(t *testing.T) {
	const tellers, each = 8, 20000
	c := New(10)
	var all sync.WaitGroup
	for range tellers {
		all.Go(func() {
			for range each {
				c.tell(&news{})
			}
		})
	}
	all.Wait()
	told := 0
	for n := c.newest.Load(); n != nil; n = n.before {
		told++
	}
	if told != tellers*each {
		t.Errorf("%d messages of %d are there", told, tellers*each)
	}
}
