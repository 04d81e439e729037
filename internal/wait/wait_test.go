package wait

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	fairdns "github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/model"
)

// cluster is a node's DNS server and a pod's resolv.conf that names it.
type cluster struct {
	store   *fairdns.Store
	metrics *fairdns.Metrics
	conf    string
	addr    netip.AddrPort
}

func freeAddr(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	m := fairdns.NewMetrics()
	c := &cluster{store: fairdns.NewStore(fairdns.StoreConfig{Metrics: m}), metrics: m, addr: freeAddr(t)}
	srv, err := fairdns.New(fairdns.Config{Addrs: []netip.AddrPort{c.addr}, Store: c.store, Park: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-srv.Ready()
	c.conf = resolvConf(t)
	return c
}

// sum adds up one metric of the server, over all labels but one.
func (c *cluster) sum(t *testing.T, name, label, value string) (n int) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c.metrics)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			ok := label == ""
			for _, l := range m.Label {
				ok = ok || l.GetName() == label && l.GetValue() == value
			}
			if ok && f.GetName() == name {
				n += int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	return n
}

// asked counts the TXT queries that were answered.
func (c *cluster) asked(t *testing.T) int {
	return c.sum(t, "fairlead_dns_requests_total", "type", "TXT")
}

func resolvConf(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	text := "search jobs.svc.cluster.local svc.cluster.local cluster.local\nnameserver 192.0.2.1\noptions ndots:5\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flux() model.ServiceKey { return model.ServiceKey{Namespace: "jobs", Name: "flux"} }

func service() model.Event {
	return model.Event{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: flux(), Value: &model.Service{Key: flux(), Headless: true}}}
}

// published makes flux-0, flux-1, … on 127.0.0.11, …; the last notReady of them are not ready.
func published(n, notReady int) model.Event {
	key := model.SliceKey{Namespace: "jobs", Name: "flux-x"}
	sl := &model.Slice{Key: key, Service: flux(), Family: model.IPv4, Headless: true}
	for i := range n {
		sl.Endpoints = append(sl.Endpoints, model.Endpoint{
			Addr: netip.AddrFrom4([4]byte{127, 0, 0, byte(11 + i)}), Hostname: fmt.Sprintf("flux-%d", i), Ready: i < n-notReady,
		})
	}
	return model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: sl}}
}

func (c *cluster) run(p Params) (string, error) {
	var out bytes.Buffer
	p.ResolvConf, p.Server, p.Out = c.conf, c.addr.String(), &out
	if p.Service == "" {
		p.Service = "service/flux"
	}
	if p.Account == "" {
		p.Account = "/nonexistent"
	}
	err := Run(context.Background(), p)
	return out.String(), err
}

func TestReasons(t *testing.T) {
	c := newCluster(t)
	c.store.Apply([]model.Event{service(), published(3, 1)})
	l, err := net.Listen("tcp", "127.0.0.11:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	for _, k := range []struct {
		what string
		p    Params
		ok   bool
		says []string
	}{
		{"enough", Params{Endpoints: 2}, true, []string{"2 endpoints published"}},
		{"a name", Params{Hostnames: []string{"flux-1"}}, true, nil},
		{"a name, resolved and connected", Params{Hostnames: []string{"flux-0"}, Resolve: true, Connect: port}, true, nil},
		{"one is not ready", Params{Endpoints: 3}, false, []string{"2 of 3", "flux-2 127.0.0.13: has an address, but is not ready"}},
		{"one has no address", Params{Endpoints: 4}, false, []string{"2 of 4", "1 more are in no EndpointSlice", "cannot list pods"}},
		{"a name is missing", Params{Hostnames: []string{"flux-0", "flux-7"}}, false, []string{"flux-7: is in no EndpointSlice"}},
		{"a name is not ready", Params{Hostnames: []string{"flux-2"}}, false, []string{"flux-2 127.0.0.13: has an address, but is not ready"}},
		{"refused", Params{Endpoints: 2, Connect: port}, false, []string{"flux-1 127.0.0.12: published, but TCP", "refused"}},
		{"one of two accepts", Params{Endpoints: 1, Connect: port}, true, nil},
		{"no such Service", Params{Service: "svc/other"}, false, []string{"no Service other in namespace jobs is known"}},
		{"another namespace", Params{Namespace: "elsewhere"}, false, []string{"namespace elsewhere"}},
	} {
		out, err := c.run(k.p)
		if k.ok != (err == nil) || !k.ok && !errors.Is(err, ErrTimeout) {
			t.Errorf("%s: got %v\n%s", k.what, err, out)
		}
		for _, s := range k.says {
			if !strings.Contains(out, s) {
				t.Errorf("%s: does not say %q:\n%s", k.what, s, out)
			}
		}
	}
}

func TestWaits(t *testing.T) {
	c := newCluster(t)
	c.store.Apply([]model.Event{service()})
	const waited = 600 * time.Millisecond
	start := time.Now()
	time.AfterFunc(waited, func() { c.store.Apply([]model.Event{published(4, 0)}) })
	out, err := c.run(Params{Endpoints: 4, Timeout: time.Minute})
	if took := time.Since(start); err != nil || took < waited || took > fairdns.MaxStatusWait { // after which the server would answer in any case
		t.Errorf("took %s: %v\n%s", took, err, out)
	}
	start = time.Now()
	if out, err = c.run(Params{Endpoints: 5, Timeout: 700 * time.Millisecond}); ExitCode(err) != 1 || time.Since(start) > fairdns.MaxStatusWait {
		t.Errorf("%v after %s\n%s", err, time.Since(start), out)
	}
}

// TestLeft: a pod that is being replaced is distinguished from one that never was.
func TestLeft(t *testing.T) {
	c := newCluster(t)
	c.store.Apply([]model.Event{service(), published(2, 0)})
	c.store.Apply([]model.Event{published(1, 0)})
	if out, err := c.run(Params{Hostnames: []string{"flux-1"}}); err == nil || !strings.Contains(out, "being replaced") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestOtherServer: without Fairlead's server the addresses are counted.
func TestOtherServer(t *testing.T) {
	addr := freeAddr(t)
	started := make(chan struct{})
	s := &dns.Server{Addr: addr.String(), Net: "tcp", NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(req)
		if q := req.Question[0]; q.Name == "flux-0.flux.jobs.svc.cluster.local." || q.Name == "flux.jobs.svc.cluster.local." {
			if q.Qtype == dns.TypeA {
				m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(10, 0, 0, 1)}}
			}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ListenAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	c := &cluster{addr: addr, conf: resolvConf(t)}
	for _, k := range []struct {
		p    Params
		code int
	}{{Params{Hostnames: []string{"flux-0"}}, 0}, {Params{Endpoints: 1}, 0}, {Params{Hostnames: []string{"flux-1"}}, 1}, {Params{Endpoints: 2}, 1}} {
		if out, err := c.run(k.p); ExitCode(err) != k.code {
			t.Errorf("%+v: got %v\n%s", k.p, err, out)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"service/a", "b"}, {"service/"}, {"service/a.b"}, {"service/a", "--endpoints", "-1"}, {"service/a", "--endpoints", "x"},
		{"service/a", "--hostnames", "a.b"}, {"service/a", "--no-such-flag"},
	} {
		cmd := Command()
		cmd.SetArgs(args)
		cmd.SetErr(new(bytes.Buffer))
		if err := cmd.Execute(); ExitCode(err) != 2 {
			t.Errorf("%q: exit code %d, %v", args, ExitCode(err), err)
		}
	}
}

// TestPods: with the right to list pods, the reason is exact.
func TestPods(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.URL.Path != "/api/v1/namespaces/jobs/pods" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"items":[
		 {"metadata":{"name":"flux-1-abc"},"spec":{"hostname":"flux-1","subdomain":"flux"},
		  "status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available"}]}},
		 {"metadata":{"name":"flux-2-abc"},"spec":{"hostname":"flux-2","subdomain":"flux","nodeName":"node-a"},"status":{"phase":"Pending"}}]}`)
	}))
	defer api.Close()
	u, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600), os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", u.Hostname())
	t.Setenv("KUBERNETES_SERVICE_PORT", u.Port())
	c := newCluster(t)
	c.store.Apply([]model.Event{service(), published(1, 0)})
	out, err := c.run(Params{Hostnames: []string{"flux-0", "flux-1", "flux-2", "flux-3"}, Account: dir})
	if ExitCode(err) != 1 {
		t.Errorf("got %v", err)
	}
	for _, s := range []string{"not scheduled: Unschedulable 0/3 nodes", "on node node-a, has no IP yet", "flux-3: there is no pod with this hostname"} {
		if !strings.Contains(out, s) {
			t.Errorf("does not say %q:\n%s", s, out)
		}
	}
}

// big makes one Service of n pods, in slices of 100, each with an address of both
// families if dual holds.
func big(n int, dual bool) (events []model.Event) {
	for from := 0; from < n; from += 100 {
		for family, on := range map[model.Family]bool{model.IPv4: true, model.IPv6: dual} {
			if !on {
				continue
			}
			key := model.SliceKey{Namespace: "jobs", Name: fmt.Sprintf("flux-%d-%s", from, family)}
			sl := &model.Slice{Key: key, Service: flux(), Family: family, Headless: true}
			for i := from; i < min(from+100, n); i++ {
				a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
				if family == model.IPv6 {
					a = netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})
				}
				sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: a, Hostname: "", Ready: true})
			}
			events = append(events, model.Event{Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: sl}})
		}
	}
	return events
}

// TestMany: the answer's length does not depend on the number of endpoints.
func TestMany(t *testing.T) {
	c := newCluster(t)
	c.store.Apply(append(big(5000, true), service()))
	for _, k := range []struct {
		p  Params
		ok bool
	}{{Params{Endpoints: 5000}, true}, {Params{Endpoints: 5001}, false}, {Params{Hostnames: []string{"10-1-0-7", "fd00--7"}}, true}, {Params{Endpoints: 5000, Resolve: true}, true}} {
		if k.ok {
			k.p.Timeout = time.Minute // a lookup of so many may fail more than once on a busy machine
		}
		if out, err := c.run(k.p); (err == nil) != k.ok {
			t.Errorf("%+v: got %v\n%s", k.p, err, out)
		}
	}
	if out, err := c.run(Params{Endpoints: 5001}); err == nil || !strings.Contains(out, "5000 of 5001") || !strings.Contains(out, "1 more are in no EndpointSlice") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestManyConnect: addresses come in pages when each of them must be tried.
func TestManyConnect(t *testing.T) {
	c := newCluster(t)
	key := model.SliceKey{Namespace: "jobs", Name: "flux-x"}
	sl := &model.Slice{Key: key, Service: flux(), Family: model.IPv4, Headless: true}
	const n = 1200 // three pages
	for i := range n {
		sl.Endpoints = append(sl.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), Hostname: fmt.Sprintf("flux-%d", i), Ready: true})
	}
	c.store.Apply([]model.Event{service(), {Slice: &model.Keyed[model.SliceKey, model.Slice]{Key: key, Value: sl}}})
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	each := make(chan struct{}, n)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
			each <- struct{}{}
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if out, err := c.run(Params{Endpoints: n, Connect: port, Timeout: 30 * time.Second}); err != nil {
		t.Errorf("got %v\n%s", err, out)
	}
	for i := range n { // as many as there are addresses, on whatever page
		select {
		case <-each:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d addresses were tried", i, n)
		}
	}
}

// TestDualStack: a pod with two addresses is one endpoint.
func TestDualStack(t *testing.T) {
	c := newCluster(t)
	c.store.Apply(append(big(2, true), service()))
	if out, err := c.run(Params{Endpoints: 3}); err == nil || !strings.Contains(out, "2 of 3") {
		t.Errorf("two pods satisfy three: %v\n%s", err, out)
	}
	if out, err := c.run(Params{Endpoints: 2}); err != nil {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestPush: the server keeps the question until it holds: the number of questions
// does not grow with the time that is waited.
func TestPush(t *testing.T) {
	c := newCluster(t)
	c.store.Apply([]model.Event{service()})
	if _, err := c.run(Params{Endpoints: 4, Timeout: 700 * time.Millisecond}); err == nil { // a wait in vain is no reason not to wait again
		t.Fatal("complete")
	}
	const waited = 3 * time.Second
	before := c.asked(t)
	start := time.Now()
	time.AfterFunc(waited, func() { c.store.Apply([]model.Event{published(4, 0)}) })
	if out, err := c.run(Params{Endpoints: 4, Timeout: time.Minute}); err != nil || time.Since(start) < waited {
		t.Errorf("after %s: %v\n%s", time.Since(start), err, out)
	}
	if n := c.asked(t) - before; n > 3 {
		t.Errorf("asked %d times", n)
	}
}

// TestEnded: SIGTERM ends the wait; the reasons are still reported, and the error once.
func TestEnded(t *testing.T) {
	c := newCluster(t)
	c.store.Apply([]model.Event{service(), published(3, 1)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil && c.sum(t, "fairlead_dns_parked", "", "") == 0 {
			time.Sleep(time.Millisecond) // bounded poll
		}
		cancel()
	}()
	var out bytes.Buffer
	start := time.Now()
	err := Run(ctx, Params{Service: "flux", Endpoints: 3, ResolvConf: c.conf, Server: c.addr.String(), Account: "/nonexistent", Timeout: time.Minute, Out: &out})
	if !errors.Is(err, ErrTimeout) || !strings.Contains(out.String(), "flux-2 127.0.0.13: has an address, but is not ready") || strings.Contains(out.String(), "ask ") {
		t.Errorf("got %v\n%s", err, out.String())
	}
	if took := time.Since(start); took >= fairdns.MaxStatusWait {
		t.Errorf("ends after %s: the question is waited for", took)
	}
}

// TestNoServer: a name server that cannot be asked is said once.
func TestNoServer(t *testing.T) {
	c := &cluster{addr: freeAddr(t), conf: resolvConf(t)}
	out, err := c.run(Params{Endpoints: 1, Timeout: 600 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) || strings.Count(out+err.Error(), "connection refused") != 1 {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestCutAnswer: another server's answer that has no room for all is no proof that
// endpoints are missing.
func TestCutAnswer(t *testing.T) {
	addr := freeAddr(t)
	started := make(chan struct{})
	s := &dns.Server{Addr: addr.String(), Net: "tcp", NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(req)
		if q := req.Question[0]; q.Qtype == dns.TypeA && q.Name == "flux.jobs.svc.cluster.local." {
			m.Truncated = true
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(10, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ListenAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	c := &cluster{addr: addr, conf: resolvConf(t)}
	if out, err := c.run(Params{Endpoints: 2}); err == nil || !strings.Contains(out, "at least 1 of 2") {
		t.Errorf("got %v\n%s", err, out)
	}
}
