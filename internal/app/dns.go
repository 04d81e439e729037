package app

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/dns/intercept"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
)

// resolvConf says where names outside the cluster are asked, unless --dns-upstream does.
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
	store := dns.NewStore(dns.StoreConfig{Sources: []string{source}, Metrics: dm})
	upstreams := cfg.Upstreams
	if len(upstreams) == 0 {
		var err error
		if upstreams, err = dns.UpstreamsOf(resolvConf); err != nil {
			a.log.Warn("names outside the cluster will not be answered", "error", err)
		}
	}
	dc := dns.Config{Addrs: cfg.Addrs, Domain: cfg.Domain, Upstreams: upstreams, Park: parkLimit(cfg.Park), PodRecords: cfg.PodRecords,
		Store: store, Metrics: dm, Log: a.log.Logger}
	if a.status != nil {
		dc.Healthy = func() bool { st := a.status(); return st.Connected || time.Since(st.Since) < 10*time.Second }
		dc.LastHeard = func() time.Time { return a.status().LastHeard }
	}
	if cfg.Intercept {
		dc.Intercepted = intercept.Servers(cfg.Addrs)
	}
	srv, err := dns.New(dc)
	if err != nil {
		return err
	}
	a.add("DNS names", func(ctx context.Context) error { store.Follow(ctx, a.names); return nil })
	a.add("DNS server", func(ctx context.Context) error {
		if err := intercept.EnsureAddrs(cfg.Addrs); err != nil {
			a.log.Warn("cannot add the DNS address to this node", "error", err)
		}
		if err := srv.Run(ctx); err != nil {
			a.log.Error("the DNS server cannot serve; Services go on", "error", err)
		}
		return nil
	})
	if cfg.Intercept {
		return a.addIntercept(store, dm, intercept.Servers(cfg.Addrs))
	}
	return nil
}

// addIntercept leads pods' queries for the cluster DNS Service to our server, for
// as long as it answers. Its tables are its own: they work beside every mode.
func (a *agent) addIntercept(store *dns.Store, dm *dns.Metrics, servers []netip.AddrPort) error {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return fmt.Errorf("open a netlink socket for --dns-intercept: %w", err)
	}
	ns, name, _ := strings.Cut(a.cfg.DNS.ClusterService, "/")
	i := intercept.New(intercept.Config{Kernel: k, Servers: servers, Healthy: store.Synced, Active: dm.Intercepted,
		VIPs:     func() []netip.Addr { return store.ClusterIPs(model.ServiceKey{Namespace: ns, Name: name}) },
		Question: "dns-version." + a.cfg.DNS.Domain + ".", Log: a.log.Logger})
	a.add("DNS interception", i.Run)
	return nil
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
