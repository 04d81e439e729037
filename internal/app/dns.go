package app

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/dns/intercept"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
)

// resolvConf is the file with the upstream servers for names outside the cluster, unless --dns-upstream sets them.
const resolvConf = "/etc/resolv.conf"

// addDNS adds the node-local DNS server, if there is to be one. It has a mailbox
// of its own, so that an answer never waits for a kernel transaction; whatever
// goes wrong with it is logged and ends nothing else.
func (a *agent) addDNS(source string) error {
	cfg := a.cfg.DNS
	if len(cfg.Addrs) == 0 {
		return nil
	}
	dm := dns.NewMetrics()
	if err := a.metrics.Registerer().Register(dm); err != nil {
		return fmt.Errorf("register DNS metrics: %w", err)
	}
	a.names = mailbox.New()
	store := dns.NewStore(dnsStoreConfig(a.cfg, source, dm))
	dc := a.dnsConfig(store, dm)
	srv, err := dns.New(dc)
	if err != nil {
		return err
	}
	a.add("DNS names", func(ctx context.Context) error { store.Follow(ctx, a.names); return nil })
	serve := func(ctx context.Context) error {
		if a.rootless != nil { // it adds no address to a link
			return srv.Run(ctx)
		}
		if err := intercept.EnsureAddrs(cfg.Addrs); err != nil {
			a.log.Warn("cannot add the DNS address to this node", "error", err)
		}
		return srv.Run(ctx)
	}
	if cfg.Intercept && a.rootless != nil {
		a.log.Warn("--dns-intercept has no effect in userspace mode: it needs nftables rules, which this mode does not write")
	}
	if !cfg.Intercept || a.rootless != nil {
		a.addLate("DNS server", serve)
		return nil
	}
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return fmt.Errorf("open a netlink socket for --dns-intercept: %w", err)
	}
	i := intercept.New(a.interceptConfig(srv, dc, k))
	a.add("DNS interception", i.Run)
	a.add("DNS server", func(ctx context.Context) error {
		ctx, end := i.Outlive(ctx)
		defer end()
		return serve(ctx)
	})
	return nil
}

// dnsStoreConfig returns the configuration of the store of names, with what is known of
// the pods' addresses.
func dnsStoreConfig(cfg *config.Config, source string, dm *dns.Metrics) dns.StoreConfig {
	c := dns.StoreConfig{Sources: []string{source}, NodeName: cfg.NodeName, PodRanges: cfg.DetectLocal.ClusterCIDRs, Metrics: dm}
	switch cfg.DetectLocal.Mode {
	case config.BridgeInterface:
		c.PodInterface = cfg.DetectLocal.Bridge
	case config.InterfaceNamePrefix:
		c.PodInterface = cfg.DetectLocal.Prefix
	}
	return c
}

// dnsConfig returns the server's configuration.
func (a *agent) dnsConfig(store *dns.Store, dm *dns.Metrics) dns.Config {
	cfg := a.cfg.DNS
	ns, name, _ := strings.Cut(cfg.ClusterService, "/")
	service := model.ServiceKey{Namespace: ns, Name: name}
	c := dns.Config{Addrs: cfg.Addrs, Domain: cfg.Domain, Upstreams: cfg.Upstreams, Park: parkLimit(cfg.Park), PodRecords: cfg.PodRecords,
		Allow: cfg.Allow, ClientRate: cfg.ClientRate, StatusForAll: cfg.StatusForAll, ClusterService: service,
		Cluster: func() []netip.AddrPort { return clusterDNS(store.ClusterIPs(service), cfg.ClusterAddrs) },
		Store:   store, Metrics: dm, Log: a.log.Logger, Listen: a.shelf.Listen, ListenPacket: a.shelf.ListenPacket}
	if len(cfg.Upstreams) == 0 {
		c.ResolvConf = resolvConf
	}
	if cfg.Intercept && a.rootless == nil {
		c.Intercepted = intercept.Servers(cfg.Addrs)
	}
	if a.status != nil {
		lost := func() time.Duration {
			if st := a.status(); !st.Connected {
				return time.Since(st.Since)
			}
			return 0
		}
		c.Healthy = func() bool { return lost() < 10*time.Second }
		c.Stale = func() bool { return cfg.MaxStale > 0 && lost() > cfg.MaxStale }
		c.LastHeard = func() time.Time { return a.status().LastHeard }
	}
	return c
}

// clusterDNS returns where the cluster's DNS answers: at its Service's addresses, or
// before that has been read, where the configuration says.
func clusterDNS(ips []netip.Addr, configured []netip.AddrPort) []netip.AddrPort {
	if len(ips) == 0 {
		return slices.Clone(configured)
	}
	var out []netip.AddrPort
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip, 53))
	}
	return out
}

// interceptConfig returns the configuration that redirects pods' queries for the cluster DNS Service
// to the agent's server while that is fit. The interception owns its tables: it works with every mode.
func (a *agent) interceptConfig(srv *dns.Server, dc dns.Config, k nft.Kernel) intercept.Config {
	return intercept.Config{Kernel: k, Servers: dc.Intercepted, Known: dc.Store.Synced, Fit: srv.Fit, Active: dc.Metrics.Intercepted,
		VIPs:     func() []netip.Addr { return dc.Store.ClusterIPs(dc.ClusterService) },
		Question: dns.StatusLabel + "." + dc.Domain + ".", Log: a.log.Logger}
}

// parkLimit: package dns takes 0 for its default and a negative value for "only
// by annotation"; the flag's 0 means the latter.
func parkLimit(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func cleanupDNS(ctx context.Context) error {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return err
	}
	return intercept.Cleanup(ctx, k)
}
