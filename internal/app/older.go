package app

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
)

// giveBack releases addresses that an earlier run of an older version made local as a whole although they may be other hosts'. It comes before
// the sources, which may need such an address: that of the API server. An error does not end the start: the first sync does the same.
func (a *agent) giveBack(ctx context.Context) {
	var n int
	var err error
	switch d := a.driver.(type) {
	case *ipvs.Driver:
		n, err = d.GiveBack(ctx, a.cfg.MasqueradeBit)
	case *userspace.Driver:
		if !a.rootless.heir { // the agent before it still answers there
			n, err = d.GiveBack(ctx)
		}
	}
	switch {
	case err != nil:
		a.log.Warn("cannot release the addresses that an earlier run made local; they stay until Services are known", "error", err)
	case n > 0:
		a.log.Info("released addresses that an earlier run made local as a whole", "addresses", n)
	}
}
