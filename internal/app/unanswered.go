package app

import (
	"context"
	"net/netip"

	"github.com/fairlead/fairlead/internal/conntrack"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/model"
)

// unanswered ends what clients began while no rule translated it: before the first rules come in, which would refuse it, and once more
// when all are in, for what began meanwhile.
type unanswered struct {
	table kernel.Table
	log   logger
	// mine are the addresses of Frontends. They are the engine's goroutine's until everything is in the kernel, and then the task's.
	mine map[netip.Addr]struct{}
}

// addUnanswered adds the second look as a task; the first is the follower's.
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

// aboutToWrite is told of everything before the first write, which it holds up for one look at what nobody has answered.
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
		u.log.Warn("cannot end flows that began before there was a rule for them: they are refused until their clients give up", "error", err)
	case n > 0:
		u.log.Info("ended flows that began before there was a rule for them: their next packet begins them anew", "flows", n)
	}
}
