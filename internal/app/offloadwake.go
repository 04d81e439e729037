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
	// wakeLook is how often the waker looks whether a connection was handed over: one read of two small tables.
	wakeLook = time.Second
	// countLook is how many looks later it makes sure that conntrack counts packets: a connection that begins meanwhile without
	// is never handed over.
	countLook = 10
	// sleepAfter is how long no connection must have been handed over, and none be on the fast path.
	sleepAfter = 10 * time.Minute
)

// waker returns the fast path its devices while there are connections for it. A device that is in a flowtable costs each packet
// that comes in by it a look-up, 2 % of a short connection, and on a node without long ones that is for nothing. A connection
// may be handed over before there are devices: it goes the usual way until they come, within a second.
type waker struct {
	awake atomic.Bool
	bell  chan struct{} // size 1: awake has changed
	// read gives how many connections the rules have handed over; carries whether some are on the fast path.
	read    func(context.Context) (uint64, error)
	carries func(context.Context) bool
	// count makes conntrack count packets again, where somebody has switched that off; nil: nobody does.
	count func()
	now   func() time.Time

	looks int
	taken uint64
	last  time.Time // something was handed over, or found there
}

// newWaker is awake at once if an earlier run was: its connections stay where they are.
func newWaker(awake bool) *waker {
	w := &waker{bell: make(chan struct{}, 1), now: time.Now, last: time.Now()}
	w.awake.Store(awake)
	return w
}

// look looks once.
func (w *waker) look(ctx context.Context) {
	if w.looks++; w.looks%countLook == 0 && w.count != nil {
		w.count()
	}
	taken, err := w.read(ctx)
	if err != nil {
		return // a table that is not there yet, or is being made anew: the next look is soon
	}
	now := w.now()
	if taken != w.taken && taken > 0 { // less than before: the rules are new ones, and count from 0
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
	default: // rung already
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

// addWaker adds what gives the fast path its devices. Where it cannot look, they are there always.
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
	a.waker.taken, _ = a.waker.read(ctx) // what an earlier run has handed over is no news; without a table there is none
	may := true
	a.waker.count = func() {
		if may && a.offload.Status().Threshold > 0 {
			may = countFlows(a.log.Logger) // where it may not be set, that was said once
		}
	}
	a.waker.carries = func(ctx context.Context) bool {
		var found metrics.Offload
		return err != nil || countOffloaded(ctx, table, readFlows(), &found) != nil || found.Now > 0
	}
	a.add("devices of the fast path", a.waker.run)
}

// nodeConfig has the devices told while the fast path has use for them.
func (a *agent) nodeConfig() node.Config {
	c := node.Config{Log: a.log.Logger}
	if a.waker != nil {
		c.Up, c.Again = a.waker.awake.Load, a.waker.bell
	}
	return c
}
