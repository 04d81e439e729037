package dns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// TestForeignPointers: a tenant's slice names no address that is another's.
func TestForeignPointers(t *testing.T) {
	r := newRig(t, nil)
	web := model.ServiceKey{Namespace: "d", Name: "web"}
	var list []model.Endpoint
	for _, a := range []string{"10.96.0.1", "10.96.0.77", "198.51.100.9", "10.1.0.5", "127.0.0.1", "169.254.169.254", "100.64.0.9"} {
		list = append(list, endpoint(a, "mine-"+strings.ReplaceAll(a, ".", "-")))
	}
	r.store.Apply([]model.Event{
		{CIDRs: &model.ServiceCIDRs{Prefixes: prefixes("10.96.0.0/16")}},
		serviceEvent(headlessService(nil)), sliceEvent(flux(), list...),
		serviceEvent(model.Service{Key: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}),
	})
	for a, want := range map[string]string{
		"10.96.0.1": "web.d.svc.cluster.local.", "10.96.0.77": "", "198.51.100.9": "", "127.0.0.1": "", "169.254.169.254": "",
		"10.1.0.5": "mine-10-1-0-5.flux.jobs.svc.cluster.local.", "100.64.0.9": "mine-100-64-0-9.flux.jobs.svc.cluster.local.",
	} {
		name, err := dns.ReverseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		m := r.ask(t, question(name, dns.TypePTR), "udp")
		got := ""
		for _, rr := range m.Answer {
			got += rr.(*dns.PTR).Ptr
		}
		if got != want {
			t.Errorf("%s is called %q, want %q", a, got, want)
		}
	}
}

// TestMayName: pod ranges do not make a link-local, loopback or Service address one that endpoints name.
func TestMayName(t *testing.T) {
	s := NewStore(StoreConfig{PodRanges: prefixes("0.0.0.0/0", "::/0")})
	s.Apply([]model.Event{{CIDRs: &model.ServiceCIDRs{Prefixes: prefixes("10.96.0.0/16")}}})
	for a, want := range map[string]bool{"169.254.169.254": false, "fe80::1": false, "127.0.0.1": false, "10.96.0.1": false, "10.1.0.5": true, "198.51.100.9": true} {
		if got := s.mayName(netip.MustParseAddr(a)); got != want {
			t.Errorf("endpoints may name %s: %t", a, got)
		}
	}
}

// TestPodNamesOfClusterIP: pods of a Service with a cluster IP have names below it, as in CoreDNS: the hostname, or else the
// address with dashes. Only those that are ready.
func TestPodNamesOfClusterIP(t *testing.T) {
	r := newRig(t, nil)
	web := model.ServiceKey{Namespace: "d", Name: "web"}
	late := endpoint("10.1.0.8", "pod-8")
	late.Ready = false
	six := model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: model.SliceKey{Namespace: "d", Name: "web-6"}}}
	six.Slice.Value = &model.Slice{Key: six.Slice.Key, Service: web, Family: model.IPv6, Endpoints: []model.Endpoint{endpoint("fd00::1", "Pod-0"), endpoint("fe80::", "")}}
	r.store.Apply([]model.Event{
		serviceEvent(model.Service{Key: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}), six,
		sliceEvent(web, endpoint("10.1.0.5", "pod-0"), endpoint("10.1.0.6", ""), endpoint("10.1.0.7", "twin"), endpoint("10.1.0.9", "twin"), late),
	})
	for _, c := range []struct {
		host  string
		qtype uint16
		want  string
		rcode int
	}{
		{"pod-0", dns.TypeA, "10.1.0.5", dns.RcodeSuccess},
		{"POD-0", dns.TypeAAAA, "fd00::1", dns.RcodeSuccess},
		{"10-1-0-6", dns.TypeA, "10.1.0.6", dns.RcodeSuccess},
		{"10-1-0-6", dns.TypeAAAA, "", dns.RcodeSuccess},
		{"fe80-0000-0000-0000-0000-0000-0000-0000", dns.TypeAAAA, "fe80::", dns.RcodeSuccess},
		{"twin", dns.TypeA, "10.1.0.7 10.1.0.9", dns.RcodeSuccess},
		{"10-1-0-5", dns.TypeA, "", dns.RcodeNameError}, // it has a hostname
		{"pod-8", dns.TypeA, "", dns.RcodeNameError},
		{"10-1-0-77", dns.TypeA, "", dns.RcodeNameError},
	} {
		m := r.ask(t, question(c.host+".web.d.svc.cluster.local", c.qtype), "udp")
		got := addresses(m)
		if slices.Sort(got); strings.Join(got, " ") != c.want || m.Rcode != c.rcode {
			t.Errorf("%s %s: got %v", c.host, dns.TypeToString[c.qtype], m)
		}
	}
}

func texts(a answer) (out []string) {
	for _, rr := range a.rrs {
		out = append(out, strings.Join(rr.(*dns.TXT).Txt, ""))
	}
	return out
}

// TestStatusFor: endpoints that are not ready are shown to the namespace's own pods
// and the node, and not to others.
func TestStatusFor(t *testing.T) {
	store := NewStore(StoreConfig{NodeName: "node-a"})
	store.Apply(nodeEvents())
	waiting := endpoint("10.244.2.9", "flux-1")
	waiting.Ready, waiting.Node = false, "node-b"
	asker := endpoint("10.244.1.9", "worker")
	asker.Ready, asker.Node = false, "node-a"
	far := endpoint("10.244.1.10", "far")
	far.Node = "node-b"
	store.Apply([]model.Event{serviceEvent(headlessService(nil)), sliceEvent(flux(), endpoint("10.1.0.1", "flux-0"), waiting, asker, far)})
	other := sliceEvent(model.ServiceKey{Namespace: "other", Name: "spy"}, model.Endpoint{Addr: netip.MustParseAddr("10.244.1.66"), Node: "node-a"})
	store.Apply([]model.Event{other})
	for _, c := range []struct {
		from string
		all  bool
		told bool
	}{
		{"10.244.1.9", false, true}, {"127.0.0.1", false, true}, {"192.0.2.10", false, true}, {"10.244.1.66", true, true},
		{"10.244.1.66", false, false}, {"10.244.1.50", false, false}, {"10.244.2.9", false, false}, {"10.244.1.10", false, false},
	} {
		z := newZone(&Config{Domain: "cluster.local", Store: store, StatusForAll: c.all})
		l := lookup{name: "_status.flux.jobs.svc.cluster.local.", qtype: dns.TypeTXT, room: 1232, client: netip.MustParseAddr(c.from)}
		plain := strings.Join(texts(z.resolve(l)), "\n")
		l.status = &StatusQuestion{Pods: 9, Hosts: []string{"flux-0", "flux-1", "flux-7"}, List: true}
		asked := strings.Join(texts(z.resolve(l)), "\n")
		for _, text := range []string{plain, asked} {
			if !strings.Contains(text, "pods=2 endpoints=2") {
				t.Errorf("%s is not told the public part:\n%s", c.from, text)
			}
			if got := strings.Contains(text, "10.244.2.9") || strings.Contains(text, "state=notready") || strings.Contains(text, " notready="); got != c.told {
				t.Errorf("%s all=%t: is told %t:\n%s", c.from, c.all, got, text)
			}
		}
	}
	store.Apply([]model.Event{{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: model.SliceKey{Namespace: "jobs", Name: "flux-1"}}}, {Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: other.Slice.Key}}})
	if len(store.locals.pods) != 0 {
		t.Errorf("left behind: %v", store.locals.pods)
	}
}

// TestStatusLength: a status fits into any message, whatever is asked.
func TestStatusLength(t *testing.T) {
	r := newRig(t, nil)
	bigStore(r.store)
	q := &StatusQuestion{Pods: 6000, List: true}
	for i := range 3000 {
		q.Hosts = append(q.Hosts, fmt.Sprintf("flux-%d", 4000+i))
	}
	m := question("_status.flux.jobs.svc.cluster.local", dns.TypeTXT)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{q.Option()}
	a := r.ask(t, m, "tcp")
	if text := strings.Join(texts(answer{rrs: a.Answer}), "\n"); a.Truncated || !strings.Contains(text, "pods=5000 endpoints=5000 complete=false") ||
		strings.Count(text, "state=absent") != maxStatusLines || strings.Count(text, "state=ready") != statusPage || !strings.Contains(text, "more from=400") {
		t.Errorf("got %d records: %.300s", len(a.Answer), text)
	}
	m = question("_status.flux.jobs.svc.cluster.local", dns.TypeTXT)
	if a := r.ask(t, m, "udp"); len(a.Answer) == 0 || a.Len() > 512 {
		t.Errorf("%d records, %d bytes", len(a.Answer), a.Len())
	}
}

// TestBigAnswers: the records that fit are built, and truncation is reported.
func TestBigAnswers(t *testing.T) {
	r := newRig(t, nil)
	bigStore(r.store)
	for _, c := range []struct {
		name  string
		qtype uint16
		udp   int // records at least
		tcp   int
		cut   bool
	}{
		{"flux.jobs.svc.cluster.local", dns.TypeA, 70, 4090, true},
		{"_zmq._tcp.flux.jobs.svc.cluster.local", dns.TypeSRV, 15, 1000, true},
		{"flux-4999.flux.jobs.svc.cluster.local", dns.TypeA, 1, 1, false},
		{"flux.jobs.svc.cluster.local", dns.TypeAAAA, 0, 0, false},
	} {
		m := question(c.name, c.qtype)
		m.SetEdns0(1232, false)
		if a := r.ask(t, m, "udp"); len(a.Answer) < c.udp || a.Truncated != c.cut || a.Rcode != dns.RcodeSuccess {
			t.Errorf("%s: %d records, truncated %t", c.name, len(a.Answer), a.Truncated)
		}
		a := r.ask(t, m, "tcp")
		if len(a.Answer) < c.tcp || a.Truncated != c.cut {
			t.Errorf("%s over TCP: %d records, truncated %t", c.name, len(a.Answer), a.Truncated)
		}
		seen := map[string]bool{}
		for _, rr := range a.Answer {
			seen[rr.String()] = true
		}
		if len(seen) != len(a.Answer) {
			t.Errorf("%s: %d of %d records are different", c.name, len(seen), len(a.Answer))
		}
	}
}

// TestIndex: names follow slices that move endpoints about, in any order, as if
// they had been read again.
func TestIndex(t *testing.T) {
	r := newStoreWorld(t)
	for step := range 400 {
		r.change(step)
		fresh := NewStore(StoreConfig{})
		fresh.Apply(r.events())
		if a, b := describe(r.store), describe(fresh); a != b {
			t.Fatalf("step %d:\n%s\nread anew:\n%s", step, a, b)
		}
	}
	r.clear()
	if n := len(r.store.services) + len(r.store.reverse) + len(r.store.slices) + len(r.store.namespaces); n != 0 {
		t.Errorf("something is left: %s", describe(r.store))
	}
}

// describe lists all names of a Store.
func describe(s *Store) string {
	var lines []string
	addrs := func(f *families) (out []string) {
		for _, a := range slices.Concat(f.v4.list, f.v6.list) {
			out = append(out, fmt.Sprintf("%s*%d", a.addr, a.reasons))
		}
		slices.Sort(out)
		return out
	}
	for key, r := range s.services {
		lines = append(lines, fmt.Sprint(key, r.kind(), addrs(&r.addrs), r.waiting, len(r.slices)))
		for name, h := range r.hosts {
			lines = append(lines, fmt.Sprint(key, name, addrs(&h.ready), h.waiting))
		}
	}
	for a, list := range s.reverse {
		for _, p := range list {
			lines = append(lines, fmt.Sprint(a, p))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestResolvConf: name servers that come, go or change after the start are used.
func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	r := newRig(t, func(c *Config) { c.ResolvConf = path })
	if err := r.srv.Fit(); err == nil || !strings.Contains(err.Error(), "resolv.conf") {
		t.Errorf("fit without a server: %v", err)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) { // bounded poll
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	write("nameserver 192.0.2.53\nnameserver " + r.addr.Addr().String() + "\n")
	until("the file is not read again", func() bool { return r.srv.Fit() == nil })
	write("")
	until("servers that are gone stay", func() bool { return r.srv.Fit() != nil })
}

// TestStale: names that are too old are asked at the cluster's DNS while it answers,
// and served all the same if it does not.
func TestStale(t *testing.T) {
	var stale atomic.Bool
	var servers atomic.Pointer[[]netip.AddrPort]
	cluster := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) { reply(w, req, req.Question[0].Name+" 5 IN A 10.0.0.9") })
	servers.Store(&[]netip.AddrPort{cluster})
	r := newRig(t, func(c *Config) {
		c.Stale = stale.Load
		c.Upstreams = []netip.AddrPort{cluster}
		c.Cluster = func() []netip.AddrPort { return *servers.Load() }
	})
	r.store.Apply([]model.Event{serviceEvent(model.Service{Key: model.ServiceKey{Namespace: "d", Name: "web"}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}})})
	until := func(want string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // bounded poll
			got := addresses(r.ask(t, question("web.d.svc.cluster.local", dns.TypeA), "udp"))
			if slices.Equal(got, []string{want}) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("got %v, want %s", got, want)
			}
		}
	}
	until("10.96.0.1")
	if err := r.srv.Fit(); err != nil {
		t.Error(err)
	}
	stale.Store(true)
	until("10.0.0.9")
	if err := r.srv.Fit(); err == nil || !strings.Contains(err.Error(), "dns-max-stale") {
		t.Errorf("fit while stale: %v", err)
	}
	servers.Store(&[]netip.AddrPort{})
	until("10.96.0.1")
	stale.Store(false)
	servers.Store(&[]netip.AddrPort{cluster})
	until("10.96.0.1")
}

// TestOtherDomain: a server whose domain is not the cluster's must not be used.
func TestOtherDomain(t *testing.T) {
	cluster := upstreamServer(t, func(w dns.ResponseWriter, req *dns.Msg) {
		if req.Question[0].Name == "kube-dns.kube-system.svc.right.example." {
			reply(w, req, req.Question[0].Name+" 5 IN A 10.96.0.10")
			return
		}
		reply(w, req)
	})
	for domain, fits := range map[string]bool{"right.example": true, "wrong.example": false} {
		r := newRig(t, func(c *Config) {
			c.Domain, c.Upstreams = domain, []netip.AddrPort{cluster}
			c.Cluster = func() []netip.AddrPort { return []netip.AddrPort{cluster} }
			c.ClusterService = model.ServiceKey{Namespace: "kube-system", Name: "kube-dns"}
		})
		for end := time.Now().Add(20 * time.Second); r.srv.domain.Load() == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // bounded poll
		}
		if err := r.srv.Fit(); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "--dns-domain") {
			t.Errorf("%s: %v", domain, err)
		}
		r.stop()
	}
}

// TestMissesBounded: names asked for in vain cost no more when many are remembered.
func TestMissesBounded(t *testing.T) {
	m := misses{since: map[model.ServiceKey]map[string]time.Time{}}
	now := time.Unix(1000, 0)
	for i := range maxMisses + 10 {
		m.missed(flux(), fmt.Sprint("h", i), now)
	}
	swept := m.swept
	m.missed(flux(), "x", now.Add(sweepMisses-1))
	if m.count != maxMisses || m.swept != swept {
		t.Errorf("%d remembered; looked through at %v and %v", m.count, swept, m.swept)
	}
	later := now.Add(missMemory + time.Second)
	m.missed(flux(), "y", later)
	if m.count != 1 {
		t.Errorf("%d are remembered for too long", m.count)
	}
}

// TestKnownInPart: while a source is Listed, and not Synced, names that it has are answered, and no name is denied.
func TestKnownInPart(t *testing.T) {
	store := NewStore(StoreConfig{Sources: []string{"file"}})
	r := newRig(t, func(c *Config) { c.Store = store })
	web, alias := model.ServiceKey{Namespace: "d", Name: "web"}, model.ServiceKey{Namespace: "d", Name: "alias"}
	store.Apply([]model.Event{
		serviceEvent(model.Service{Key: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}),
		serviceEvent(model.Service{Key: alias, ExternalName: "unread.d.svc.cluster.local"}),
		serviceEvent(headlessService(nil)), sliceEvent(flux(), endpoint("10.1.0.5", "flux-0")),
	})
	names := []string{"web.d.svc", "flux-0.flux.jobs.svc", "flux-1.flux.jobs.svc", "unread.d.svc", "alias.d.svc", "1.0.96.10.in-addr.arpa."}
	for _, c := range []struct {
		event model.Event
		want  string
	}{
		{model.Event{Listed: "host"}, "SERVFAIL SERVFAIL SERVFAIL SERVFAIL SERVFAIL REFUSED"},
		{model.Event{Listed: "file"}, "10.96.0.1 10.1.0.5 SERVFAIL SERVFAIL SERVFAIL web.d.svc.cluster.local."},
		{model.Event{Synced: "file"}, "10.96.0.1 10.1.0.5 NXDOMAIN NXDOMAIN NXDOMAIN web.d.svc.cluster.local."},
	} {
		store.Apply([]model.Event{c.event})
		var got []string
		for _, name := range names {
			qtype := dns.TypeA
			if !strings.HasSuffix(name, ".") {
				name += ".cluster.local."
			} else {
				qtype = dns.TypePTR
			}
			m := r.ask(t, question(name, qtype), "udp")
			said := dns.RcodeToString[m.Rcode]
			if m.Rcode == dns.RcodeSuccess && len(m.Answer) == 1 {
				said = dns.Field(m.Answer[0], 1)
			}
			got = append(got, said)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("after %+v\n got %s\nwant %s", c.event, got, c.want)
		}
	}
	if m := r.ask(t, question("web.d.svc.cluster.local.", dns.TypeAAAA), "udp"); m.Rcode != dns.RcodeSuccess {
		t.Errorf("no address of a family is %s", dns.RcodeToString[m.Rcode])
	}
}
