package app

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/k8s"
)

func freeDNSAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// otherDNS is the cluster's DNS: it has an answer for every name.
func otherDNS(t *testing.T) netip.AddrPort {
	t.Helper()
	addr, started := freeDNSAddr(t), make(chan struct{})
	s := &mdns.Server{Addr: addr.String(), Net: "udp", NotifyStartedFunc: func() { close(started) }, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, req *mdns.Msg) {
		m := new(mdns.Msg)
		m.SetReply(req)
		m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: req.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET}, A: net.IPv4(10, 0, 0, 9)}}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ListenAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	return addr
}

// TestDNSBeforeSync: with the configuration that production makes, cluster names
// are asked at the cluster's DNS until the first list is in, and pods' queries are
// not led here before that, nor when the API server is lost for long.
func TestDNSBeforeSync(t *testing.T) {
	cluster, addr := otherDNS(t), freeDNSAddr(t)
	var status atomic.Pointer[k8s.Status]
	status.Store(&k8s.Status{Connected: true})
	a := &agent{cfg: &config.Config{NodeName: "node-a", DNS: config.DNS{Addrs: []netip.AddrPort{addr}, Domain: "cluster.local",
		Upstreams: []netip.AddrPort{cluster}, ClusterService: "kube-system/kube-dns", ClusterAddrs: []netip.AddrPort{cluster},
		Intercept: true, MaxStale: time.Minute, PodRecords: true}},
		log: logger{Logger: slog.New(slog.DiscardHandler)}, status: func() k8s.Status { return *status.Load() }}
	m := dns.NewMetrics()
	store := dns.NewStore(dnsStoreConfig(a.cfg, "k8s", m))
	srv, err := dns.New(a.dnsConfig(store, m))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-srv.Ready()
	ask := func() *mdns.Msg {
		q := new(mdns.Msg)
		q.SetQuestion("web.default.svc.cluster.local.", mdns.TypeA)
		c := mdns.Client{Timeout: 10 * time.Second}
		r, _, err := c.Exchange(q, addr.String())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	fit := a.interceptConfig(srv, a.dnsConfig(store, m), nil).Fit
	if r := ask(); len(r.Answer) != 1 {
		t.Errorf("before the first list: %v", r)
	}
	if err := fit(); err == nil || !strings.Contains(err.Error(), "have not been read") {
		t.Errorf("queries are led here before the first list: %v", err)
	}
	store.Apply([]model.Event{{Synced: "k8s"}})
	if r := ask(); r.Rcode != mdns.RcodeNameError {
		t.Errorf("after the first list: %v", r)
	}
	status.Store(&k8s.Status{Since: time.Now().Add(-2 * time.Minute)})
	if err := fit(); err == nil || !strings.Contains(err.Error(), "--dns-max-stale") {
		t.Errorf("queries are led here although the API server is lost: %v", err)
	}
}
