package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	kerneliptables "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nfacct"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/takeover"
)

// addTakeover adds the task that removes stale rules of other proxies and modes, once the
// agent's rules are in the kernel. It owns its sockets, so that it works concurrently with
// the engine.
func (a *agent) addTakeover(own takeover.Place) {
	a.add("takeover", func(ctx context.Context) error {
		kernels, err := openKernels(a.cfg.IPVS.ExcludeCIDRs...)
		if err != nil {
			a.log.Warn("cannot read the rules that other proxies left", "error", err)
			return nil
		}
		if own != takeover.NFTables {
			kernels.Planes.RemoveCounters = nil // the agent's own rules feed them
		}
		return takeover.Run(ctx, takeover.Params{Kernels: kernels, Own: own, Leave: a.cfg.NoTakeover, Drain: a.cfg.IPVS.DrainGrace, InKernel: a.follow.inKernel, Verify: a.migration.verify, Live: liveKubeProxy, Report: a.memory.rewrites, Log: a.log.Logger})
	})
}

// addLeftovers adds the task that logs stale rules of other proxies and modes. Userspace mode removes no rules. Stale rules catch
// connections before they reach the agent's listeners. Without the right to read them nothing is found, and the agent cannot have written any.
func (a *agent) addLeftovers() {
	a.add("leftovers", func(ctx context.Context) error {
		kernels, err := openKernels()
		if err != nil {
			return nil //nolint:nilerr // see above
		}
		for owner, command := range map[string]string{takeover.Fairlead: "fairlead cleanup", takeover.KubeProxy: "fairlead cleanup --kube-proxy"} {
			found, err := kernels.Find(ctx, owner)
			if err != nil {
				a.log.Debug("cannot read the rules that other proxies left", "error", err)
			}
			for i := range found {
				a.log.Warn("rules of another mode intercept connections before they reach this agent: stop the program that writes them, then remove the rules",
					"what", found[i].String(), "command", command)
			}
		}
		return nil
	})
}

// openKernels opens every place where a proxy may have left rules. Where the
// programs of iptables are not installed its chains cannot be removed. Virtual servers of
// IPVS in exclude have an unknown owner.
func openKernels(exclude ...netip.Prefix) (takeover.Kernels, error) {
	k := takeover.Kernels{Planes: planes()}
	tables, err := nft.Open(nft.Config{})
	if err != nil {
		return k, fmt.Errorf("open a netlink socket to nftables: %w", err)
	}
	k.NFT = tables
	for _, b := range []kerneliptables.Backend{kerneliptables.NFT, kerneliptables.Legacy} {
		if at, err := openBackend(b); err == nil {
			k.IPTables = append(k.IPTables, at)
		}
	}
	serverPlanes(&k.Planes, removal{tables, exclude})
	if counters, err := nfacct.Open(nfacct.Config{}); err == nil {
		k.Planes.RemoveCounters = func(ctx context.Context) error {
			return iptables.RemoveCounters(ctx, counters, slog.New(slog.DiscardHandler))
		}
	}
	return k, nil
}

// planes returns the data planes' functions that recognise and remove their objects.
func planes() takeover.Planes {
	who := func(owner string) iptables.Owner {
		if owner == takeover.KubeProxy {
			return iptables.KubeProxys
		}
		return iptables.Ours
	}
	return takeover.Planes{
		OurTable: nftables.IsOurs, OurServers: ipvs.IsOurs,
		CountChains: func(ctx context.Context, k kerneliptables.Kernel, owner string) (int, error) {
			return iptables.Leftovers(ctx, k, who(owner))
		},
		RemoveChains: func(ctx context.Context, k kerneliptables.Kernel, owner string) error {
			return iptables.RemoveLeftovers(ctx, k, who(owner))
		},
	}
}
