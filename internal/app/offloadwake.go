package app

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/node"
)

const (
	// wakeLook is the interval at which the waker checks for connections that were offloaded: one read of two small tables.
	wakeLook = time.Second
	// countLook is the number of checks after which the waker ensures that conntrack counts packets: a connection that begins while
	// conntrack does not count is never offloaded.
	countLook = 10
	// sleepAfter is how long no connection must have been offloaded, and none be on the fast path, before the devices are removed.
	sleepAfter = 10 * time.Minute
)

// waker adds the devices to the flowtable while there are connections to offload. A device in a flowtable costs each incoming
// packet a lookup, 2 % of a short connection; on a node without long connections that is wasted. A connection
// may be offloaded before the devices are there: the rules handle its packets until the devices are added, within a second.
type waker struct {
	awake atomic.Bool
	bell  chan struct{} // size 1: awake has changed
	// read returns how many connections the rules have offloaded; carries reports whether some are on the fast path.
	read    func(context.Context) (uint64, error)
	carries func(context.Context) bool
	// count makes conntrack count packets again after another program has switched that off; nil: it is not checked.
	count func()
	now   func() time.Time

	looks int
	taken uint64
	last  time.Time // when a connection was last offloaded, or found on the fast path
}

// newWaker returns a waker that is awake at once if an earlier run was: connections of that run stay on the fast path.
func newWaker(awake bool) *waker {
	w := &waker{bell: make(chan struct{}, 1), now: time.Now, last: time.Now()}
	w.awake.Store(awake)
	return w
}

// look checks the counters once.
func (w *waker) look(ctx context.Context) {
	if w.looks++; w.looks%countLook == 0 && w.count != nil {
		w.count()
	}
	taken, err := w.read(ctx)
	if err != nil {
		return // the table does not exist yet, or is being rebuilt: the next check retries
	}
	now := w.now()
	if taken != w.taken && taken > 0 { // less than before: the rules were rebuilt, and count from 0
		w.last = now
		w.set(true)
	}
	w.taken = taken
	if w.awake.Load() && now.Sub(w.last) >= sleepAfter {
		w.last = now
		w.set(w.carries(ctx))
	}
}

func (w *waker) set(awake bool) {
	if w.awake.Swap(awake) == awake {
		return
	}
	select {
	case w.bell <- struct{}{}:
	default: // a notification is pending already
	}
}

func (w *waker) run(ctx context.Context) error {
	tick := time.NewTicker(wakeLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look(ctx)
		}
	}
}

// addWaker adds the task that adds and removes the devices of the fast path. If it cannot read the kernel, the devices are always there.
func (a *agent) addWaker() {
	if a.offload == nil {
		return
	}
	k, err := nft.Open(nft.Config{})
	if err != nil {
		a.waker = newWaker(true)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), countFor)
	defer stop()
	a.waker = newWaker(offload.HasDevices(ctx, k.Flowtables))
	a.waker.read = func(ctx context.Context) (uint64, error) {
		c, err := offload.ReadCounts(ctx, k)
		return c.Taken, err
	}
	table, err := conntrack.Open(conntrack.Config{})
	a.waker.taken, _ = a.waker.read(ctx) // connections that an earlier run has offloaded do not count; 0 without a table
	may := true
	a.waker.count = func() {
		if may && a.offload.Status().Threshold > 0 {
			may = countFlows(a.log.Logger) // if it may not be set, that was logged once
		}
	}
	a.waker.carries = func(ctx context.Context) bool {
		var found metrics.Offload
		return err != nil || countOffloaded(ctx, table, readFlows(), &found) != nil || found.Now > 0
	}
	a.add("devices of the fast path", a.waker.run)
}

// nodeConfig returns the configuration of the node source. It reports devices only while the fast path needs them.
func (a *agent) nodeConfig() node.Config {
	c := node.Config{Log: a.log.Logger}
	if a.waker != nil {
		c.Up, c.Again = a.waker.awake.Load, a.waker.bell
	}
	return c
}
