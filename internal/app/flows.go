package app

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/conntrack"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

const (
	// flowsPause is the least time between two walks through the table of connections.
	flowsPause = time.Second
	// flowsLimit bounds one answer, the wait for its turn included.
	flowsLimit = 5 * time.Second
)

// flowLooks admits one walk through the table at a time.
type flowLooks struct {
	mu   sync.Mutex
	last time.Time
}

// begin waits until a walk may begin. If it returns no error, end must be called.
func (l *flowLooks) begin(ctx context.Context) error {
	if !l.mu.TryLock() {
		return errors.New("the connection table is already being read: try again")
	}
	select {
	case <-time.After(time.Until(l.last.Add(flowsPause))):
		return nil
	case <-ctx.Done():
		l.mu.Unlock()
		return ctx.Err()
	}
}

func (l *flowLooks) end() {
	l.last = time.Now()
	l.mu.Unlock()
}

// countFlows adds the open connections to an explanation. It runs on the caller's goroutine,
// with its own socket.
func (i *inspection) countFlows(ctx context.Context, out *inspect.Explanation) {
	ctx, cancel := context.WithTimeout(ctx, flowsLimit)
	defer cancel()
	var nodePorts []netip.Addr
	if err := i.a.engine.Inspect(ctx, func(v engine.View) { nodePorts = v.Node().NodePortAddrs }); err != nil {
		out.TakeFlows(out.Counter(nil), 0, err)
		return
	}
	c := out.Counter(nodePorts)
	if i.a.rootless != nil {
		out.TakeFlows(c, 0, errors.New("in userspace mode the agent relays connections itself"))
		return
	}
	if err := i.flows.begin(ctx); err != nil {
		out.TakeFlows(c, 0, err)
		return
	}
	defer i.flows.end()
	begun := time.Now()
	err := countIn(ctx, c)
	out.TakeFlows(c, time.Since(begun), err)
}

func countIn(ctx context.Context, c *inspect.FlowCounter) error {
	table, err := kernel.Open(kernel.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = table.Close() }()
	for _, q := range c.Queries() {
		f := kernel.Filter{Family: conntrack.KernelFamily(q.Family), Protocol: uint8(q.Protocol), OrigDst: q.Addr, OrigPort: q.Port}
		err := table.Flows(ctx, f, func(x kernel.Flow) {
			c.Add(inspect.Flow{Protocol: model.Protocol(x.Protocol), To: x.Orig.Dst, End: x.Reply.Src, Replied: x.Replied})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
