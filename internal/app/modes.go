package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/dataplane/offload"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/takeover"
)

// mode is one data plane: how to make its driver in the current namespace.
type mode struct {
	name string
	open func(context.Context, *config.Config) (opened, error)
}

// opened is a driver, and what the agent must know of it besides.
type opened struct {
	driver dataplane.Driver
	// reads tells how often the driver has read the kernel so far.
	reads func() int
	place takeover.Place
	// observe names who is told of failures and sizes; nil: the driver has nothing to tell.
	observe func(iptables.Observer)
	// closers give back what the driver uses; an agent needs it until its end.
	closers []func() error
	// offload is the acceleration beside the driver, and part of it; nil: there is none.
	offload *offload.Driver
	// refusals reads what the data plane counts of what it refuses and drops; nil: nothing.
	refusals refusals
	// rootless is set for the mode that writes no kernel state.
	rootless *rootless
}

// close returns everything back.
func (o *opened) close() {
	for _, c := range o.closers {
		_ = c() // nothing is lost with it
	}
}

func builtModes() []mode {
	return []mode{{nftables.Name, openNFTables}, {iptables.Name, openIPTables}, {ipvs.Name, openIPVS}, {userspace.Name, openUserspace}}
}

func modes() (names []string) {
	for _, m := range builtModes() {
		names = append(names, m.name)
	}
	return names
}

func openNFTables(ctx context.Context, cfg *config.Config) (opened, error) {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return opened{}, fmt.Errorf("open a netlink socket to nftables: %w", err)
	}
	finder, err := nft.Open(nft.Config{})
	if err != nil {
		return opened{}, errors.Join(fmt.Errorf("open a netlink socket to look at nftables: %w", err), k.Close())
	}
	reader, err := nft.Open(gently(true))
	if err != nil {
		return opened{}, errors.Join(fmt.Errorf("open a netlink socket to read nftables: %w", err), k.Close(), finder.Close())
	}
	count := nft.NewCounter(withFaults(k))
	reads := func() int { c := count.Counts(); return int(c.Reads + c.Generation) }
	out := opened{reads: reads, place: takeover.NFTables, closers: []func() error{k.Close, finder.Close, reader.Close}}
	if cfg.ServiceMetrics > 0 {
		if err := out.readRefusalsOfNFTables(); err != nil {
			out.close()
			return opened{}, err
		}
	}
	if cfg.Offload.Threshold == 0 {
		out.driver = nftables.New(nftables.Params{Kernel: count, Finder: finder, Surveyor: reader})
		return out, nil
	}
	ledger := &nft.Ledger{} // one socket, so one account
	own := nftables.New(nftables.Params{Kernel: count, Finder: finder, Surveyor: reader, Ledger: ledger, Beside: offload.IsTable})
	p := offload.Params{Kernel: count, Flowtables: k.Flowtables, Ledger: ledger}
	out.lookBeside(&p)
	out.offload = beside(ctx, own, cfg, p)
	out.driver = out.offload
	return out, nil
}

// gently configures a socket for who reads much and may take his time, or is in a hurry.
func gently(is bool) (c nft.Config) {
	if is {
		c.WrapCommands = netlink.Gently
	}
	return c
}

func openDriver(ctx context.Context, cfg *config.Config) (opened, error) {
	for _, m := range builtModes() {
		if m.name == cfg.Mode {
			return m.open(ctx, cfg)
		}
	}
	return opened{}, fmt.Errorf("proxy mode %q is not built", cfg.Mode)
}
