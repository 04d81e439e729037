package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	kernelipvs "github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/takeover"
)

// openIPVS opens IPVS, the links, and nftables for what IPVS cannot do.
func openIPVS(_ context.Context, cfg *config.Config) (opened, error) {
	rules, err := nft.Open(nft.Config{})
	if err != nil {
		return opened{}, fmt.Errorf("open a netlink socket to nftables: %w", err)
	}
	k, err := kernelipvs.Open(kernelipvs.Config{})
	if err != nil {
		return opened{}, errors.Join(fmt.Errorf("proxy mode ipvs: %w", err), rules.Close())
	}
	links, err := kernelipvs.OpenLink()
	if err != nil {
		return opened{}, errors.Join(err, k.Close(), rules.Close())
	}
	count, servers := nft.NewCounter(withFaults(rules)), kernelipvs.NewCounter(withServerFaults(k))
	reads := func() int {
		c := count.Counts()
		n, _ := servers.Counts()
		return int(c.Reads + c.Generation + n)
	}
	out := opened{reads: reads, place: takeover.IPVS, closers: []func() error{rules.Close, k.Close, func() error { links.Close(); return nil }}}
	look, err := out.openBeside(false)
	if err != nil {
		out.close()
		return opened{}, err
	}
	read, err := out.openBeside(true)
	if err != nil {
		out.close()
		return opened{}, err
	}
	s := cfg.IPVS
	out.driver = ipvs.New(ipvs.Params{NFT: count, IPVS: servers, Addresses: links, Look: ipvs.Look{NFT: look.NFT, IPVS: look.IPVS, Addresses: look.Addresses},
		Beside: ipvs.Sockets{NFT: read.NFT, IPVS: read.IPVS, Addresses: read.Addresses}, Scheduler: s.Scheduler, Exclude: s.ExcludeCIDRs, Drain: s.DrainGrace,
		EndGone:  cfg.ResetGoneEndpoints,
		Timeouts: kernelipvs.Timeouts{TCP: s.TCP, TCPFin: s.TCPFin, UDP: s.UDP}, Audit: cfg.SyncPeriod})
	return out, nil
}

// socketsBeside are further sockets of the same kinds, for reads concurrent with the engine.
type socketsBeside struct {
	NFT       *nft.Conn
	IPVS      *kernelipvs.Conn
	Addresses *kernelipvs.Link
}

// openBeside opens them; gentle ones are for callers that read much and are not urgent. What was opened before an error is closed with the rest.
func (o *opened) openBeside(gentle bool) (s socketsBeside, err error) {
	if s.NFT, err = nft.Open(gently(gentle)); err != nil {
		return s, fmt.Errorf("open a netlink socket to read nftables: %w", err)
	}
	o.closers = append(o.closers, s.NFT.Close)
	if s.IPVS, err = kernelipvs.Open(kernelipvs.Config{Gentle: gentle}); err != nil {
		return s, fmt.Errorf("proxy mode ipvs: %w", err)
	}
	o.closers = append(o.closers, s.IPVS.Close)
	open := kernelipvs.OpenLink
	if gentle {
		open = kernelipvs.OpenGentleLink
	}
	if s.Addresses, err = open(); err != nil {
		return s, err
	}
	o.closers = append(o.closers, func() error { s.Addresses.Close(); return nil })
	return s, nil
}

// removal is for removing what ipvs modes made.
type removal struct {
	rules   nft.Kernel
	exclude []netip.Prefix // virtual servers there that are not in our account are left alone
}

// servers calls do with a driver that is for removing only. IPVS is opened just for that: to ask for it makes
// the kernel load it.
func (r removal) servers(do func(*ipvs.Driver) error) error {
	k, err := kernelipvs.Open(kernelipvs.Config{})
	if err != nil {
		return err
	}
	links, err := kernelipvs.OpenLink()
	if err != nil {
		return errors.Join(err, k.Close())
	}
	defer links.Close()
	return errors.Join(do(ipvs.New(ipvs.Params{NFT: r.rules, IPVS: k, Addresses: links, Exclude: r.exclude})), k.Close())
}

// nodePorts calls do with the virtual servers of kube-proxy's NodePorts; a kernel without IPVS has none.
func (r removal) nodePorts(do func(ipvs.Theirs) error) error {
	_, ports, err := kernelipvs.Sets()
	if err != nil || len(ports) == 0 {
		return err
	}
	err = r.servers(func(d *ipvs.Driver) error { return do(d.Theirs(ports)) })
	if errors.Is(err, kernelipvs.ErrNoIPVS) {
		return nil
	}
	return err
}

// serverPlanes sets the functions with which takeover removes objects of ipvs modes.
func serverPlanes(p *takeover.Planes, r removal) {
	p.RetireServers = func(ctx context.Context) (n int, err error) {
		err = r.servers(func(d *ipvs.Driver) error { n, err = d.Retire(ctx); return err })
		if errors.Is(err, kernelipvs.ErrNoIPVS) { // then there is nothing to wait for
			return 0, nil
		}
		return n, err
	}
	p.RemoveServers = func(ctx context.Context) error {
		return r.servers(func(d *ipvs.Driver) error { return d.Cleanup(ctx) })
	}
	p.RemoveDevice = func(ctx context.Context) error {
		err := r.servers(func(d *ipvs.Driver) error { return d.CleanDevice(ctx) })
		if errors.Is(err, kernelipvs.ErrNoIPVS) { // which then has no servers either
			return kernelipvs.RemoveDevice()
		}
		return err
	}
	p.RetireNodePorts = func(ctx context.Context) (n int, err error) {
		err = r.nodePorts(func(t ipvs.Theirs) error { n, err = t.Retire(ctx); return err })
		return n, err
	}
	p.RemoveNodePorts = func(ctx context.Context) error {
		return r.nodePorts(func(t ipvs.Theirs) error { return t.Clean(ctx) })
	}
}
