package spec

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	fairdns "github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/test/headless/kubeapi"
)

func freePort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func startFairlead(t *testing.T) netip.AddrPort {
	store := fairdns.NewStore(fairdns.StoreConfig{})
	events, err := Load(kubeapi.New())
	if err != nil {
		t.Fatal(err)
	}
	store.Apply(events)
	addr := freePort(t)
	srv, err := fairdns.New(fairdns.Config{Addrs: []netip.AddrPort{addr}, Store: store, Park: -1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-srv.Ready()
	return addr
}

// startCoreDNS runs upstream's server on the same objects. It skips the test if CoreDNS
// has not been built (test/headless/build.sh).
func startCoreDNS(t *testing.T) netip.AddrPort {
	cache := os.Getenv("FAIRLEAD_CACHE")
	if cache == "" {
		cache = "../../../.cache"
	}
	bin, err := filepath.Abs(filepath.Join(cache, "bin", "coredns"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("CoreDNS has not been built: test/headless/build.sh does")
	}
	api := kubeapi.New()
	if _, err := Load(api); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(api)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	addr := freePort(t)
	corefile := filepath.Join(t.TempDir(), "Corefile")
	text := fmt.Sprintf(".:%d {\n bind 127.0.0.1\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n  endpoint %s\n  ttl 5\n }\n}\n", addr.Port(), web.URL)
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-conf", corefile)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	waitFor(t, addr)
	return addr
}

func waitFor(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		if r, err := ask(addr, "web.default.svc.cluster.local.", "A"); err == nil && len(r.Answer) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond) // bounded poll: another program cannot notify the test
	}
	t.Fatalf("%s does not answer", addr)
}

func ask(addr netip.AddrPort, name, qtype string) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.StringToType[qtype])
	m.SetEdns0(1232, false)
	c := dns.Client{Timeout: 2 * time.Second}
	r, _, err := c.Exchange(m, addr.String())
	return r, err
}

// short returns a reply in the form of the table.
func short(r *dns.Msg) Reply {
	var out Reply
	if r.Rcode != dns.RcodeSuccess {
		out.Rcode = dns.RcodeToString[r.Rcode]
	}
	for _, rr := range r.Answer {
		data := strings.TrimPrefix(rr.String(), rr.Header().String())
		switch rr := rr.(type) {
		case *dns.SRV:
			data = fmt.Sprintf("%d %s", rr.Port, rr.Target)
		case *dns.SOA:
			data = ""
		}
		text := strings.TrimSpace(dns.TypeToString[rr.Header().Rrtype] + " " + data)
		out.Answer = append(out.Answer, strings.TrimSuffix(text, ".cluster.local."))
	}
	slices.Sort(out.Answer)
	return out
}

func (c *Case) fqdn() string {
	if strings.HasSuffix(c.Name, ".") {
		return c.Name
	}
	return c.Name + ".cluster.local."
}

func TestFairlead(t *testing.T) {
	addr := startFairlead(t)
	for _, c := range Cases() {
		t.Run(c.Type+" "+c.Name, func(t *testing.T) {
			r, err := ask(addr, c.fqdn(), c.Type)
			if err != nil {
				t.Fatal(err)
			}
			want := Reply{Rcode: c.Rcode, Answer: c.Answer}
			if got := short(r); got.Rcode != want.Rcode || !slices.Equal(got.Answer, want.Answer) {
				t.Errorf("got %v, want %v", got, want)
			}
			checkShape(t, &c, r)
		})
	}
}

// checkShape checks what holds for every answer.
func checkShape(t *testing.T, c *Case, r *dns.Msg) {
	if c.Rcode == "REFUSED" {
		return
	}
	if !r.Authoritative {
		t.Error("not authoritative")
	}
	for _, rr := range r.Answer {
		if rr.Header().Ttl != 5 {
			t.Errorf("TTL is %d: %s", rr.Header().Ttl, rr)
		}
		if rr.Header().Rrtype != dns.TypeCNAME && len(r.Answer) == 1 && rr.Header().Name != c.fqdn() {
			t.Errorf("asked for %s, got %s", c.fqdn(), rr.Header().Name)
		}
	}
	if len(r.Answer) > 0 {
		return
	}
	if len(r.Ns) != 1 {
		t.Fatalf("negative answer with authority %v", r.Ns)
	}
	if soa, ok := r.Ns[0].(*dns.SOA); !ok || soa.Hdr.Ttl != 0 || soa.Minttl != 0 {
		t.Errorf("negative answer may be kept: %v", r.Ns[0])
	}
}

func TestCoreDNS(t *testing.T) {
	addr := startCoreDNS(t)
	for _, c := range Cases() {
		t.Run(c.Type+" "+c.Name, func(t *testing.T) {
			r, err := ask(addr, c.fqdn(), c.Type)
			if err != nil {
				t.Fatal(err)
			}
			want := Reply{Rcode: c.Rcode, Answer: c.Answer}
			if c.Why != "" {
				want = *c.CoreDNS
			}
			if got := short(r); got.Rcode != want.Rcode || !slices.Equal(got.Answer, want.Answer) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
