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

// mode is one data plane, with the function that opens its driver in the current namespace.
type mode struct {
	name string
	open func(context.Context, *config.Config) (opened, error)
}

// opened is a driver, and what else the agent needs of its data plane.
type opened struct {
	driver dataplane.Driver
	// reads returns how often the driver has read the kernel so far.
	reads func() int
	place takeover.Place
	// observe sets the observer of failures and sizes; nil: the driver reports none.
	observe func(iptables.Observer)
	// closers close what the driver uses; an agent needs it until its end.
	closers []func() error
	// offload is the acceleration, which wraps the driver; nil: there is none.
	offload *offload.Driver
	// refusals reads the data plane's counters of refused and dropped packets; nil: it has none.
	refusals refusals
	// rootless is set for the mode that writes no kernel state.
	rootless *rootless
}

// close closes everything that was opened.
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
		return opened{}, errors.Join(fmt.Errorf("open a netlink socket to read nftables: %w", err), k.Close())
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
	ledger := &nft.Ledger{} // one socket, so one ledger
	own := nftables.New(nftables.Params{Kernel: count, Finder: finder, Surveyor: reader, Ledger: ledger, Beside: offload.IsTable})
	p := offload.Params{Kernel: count, Flowtables: k.Flowtables, Ledger: ledger}
	out.lookBeside(&p)
	out.offload = beside(ctx, own, cfg, p)
	out.driver = out.offload
	return out, nil
}

// gently returns the configuration of a socket: for a caller that reads much and is not urgent if is, else for an urgent one.
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
	return opened{}, fmt.Errorf("proxy mode %q is not in this build", cfg.Mode)
}
