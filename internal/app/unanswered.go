package app

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/internal/conntrack"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// unanswered ends flows that clients began while no rule translated them: before the first rules come in, which would refuse them, and once
// more when all rules are in, for flows that began in between.
type unanswered struct {
	table kernel.Table
	log   logger
	// mine are the addresses of Frontends. The engine's goroutine owns the map until everything is in the kernel, and then the task.
	mine map[netip.Addr]struct{}
}

// addUnanswered adds the second pass as a task; the follower does the first.
func (a *agent) addUnanswered() {
	table, err := kernel.Open(kernel.Config{})
	if err != nil {
		return // addConntrack has said so
	}
	a.unanswered = &unanswered{table: table, log: a.log, mine: map[netip.Addr]struct{}{}}
	a.add("unanswered flows", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-a.follow.inKernel:
			a.unanswered.end(ctx)
			a.unanswered.mine = nil
		}
		return table.Close()
	})
}

// aboutToWrite is notified of all Frontends before the first write. It delays that write for one pass over the unanswered flows.
func (u *unanswered) aboutToWrite(decided []model.Frontend) {
	for i := range decided {
		if addr := decided[i].Key.Addr; addr.IsValid() {
			u.mine[addr] = struct{}{}
		}
	}
	u.end(context.Background())
}

func (u *unanswered) end(ctx context.Context) {
	n, err := conntrack.EndUnanswered(ctx, u.table, func(a netip.Addr) bool { _, ok := u.mine[a]; return ok })
	switch {
	case ctx.Err() != nil:
	case err != nil:
		u.log.Warn("cannot end flows that began before their rule existed; their packets are rejected until the flows time out", "error", err)
	case n > 0:
		u.log.Info("ended flows that began before their rule existed; their next packet starts a new flow", "flows", n)
	}
}
