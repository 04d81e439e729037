package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

var (
	web = model.ServiceKey{Namespace: "default", Name: "web"}
	api = model.ServiceKey{Namespace: "prod", Name: "api"}
)

type bindErrors struct {
	mu  sync.Mutex
	all []string
}

func (b *bindErrors) add(svc model.ServiceKey, port uint16, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, fmt.Sprintf("%s %d", svc, port))
}

func (b *bindErrors) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.all...)
}

func newService(healthy func() bool) (*ServiceHealth, *bindErrors) {
	b := &bindErrors{}
	return NewServiceHealth(ServiceHealthParams{
		Families: []model.Family{model.IPv4, model.IPv6}, Healthy: healthy, OnBindError: b.add, Log: quiet(),
	}), b
}

func yes() bool { return true }

// everywhere are all addresses of both families.
func everywhere() []netip.Addr { return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} }

func answers(url string) bool { _, _, err := fetch(url); return err == nil }

func TestServiceAnswers(t *testing.T) {
	var healthy atomic.Bool
	h, _ := newService(healthy.Load)
	h.SetAddrs(everywhere())
	start(t, h.Run)
	for _, tc := range []struct {
		ready   int
		healthy bool
		code    int
		body    string
	}{
		{2, true, 200, `{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}`},
		{0, true, 503, `{"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`},
		{1, false, 503, `{"service":{"namespace":"default","name":"web"},"localEndpoints":1,"serviceProxyHealthy":false}`},
	} {
		healthy.Store(tc.healthy)
		h.Set(map[model.ServiceKey]ServicePort{web: {Port: 30100, LocalReady: tc.ready}})
		for _, url := range []string{"http://127.0.0.1:30100/", "http://[::1]:30100/healthz"} {
			var resp *http.Response
			var body string
			eventually(t, url, func() bool {
				var err error
				resp, body, err = fetch(url)
				return err == nil
			})
			if body != tc.body || resp.StatusCode != tc.code {
				t.Errorf("%s: %d %s\nwant %d %s", url, resp.StatusCode, body, tc.code, tc.body)
			}
			if w := resp.Header.Get("X-Load-Balancing-Endpoint-Weight"); w != fmt.Sprint(tc.ready) {
				t.Errorf("weight %q", w)
			}
			if ct := resp.Header.Get("Content-Type"); ct != "application/json" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", resp.Header)
			}
		}
	}
}

func TestServicePortsComeAndGo(t *testing.T) {
	h, errs := newService(yes)
	h.SetAddrs(everywhere())
	start(t, h.Run)
	h.Set(map[model.ServiceKey]ServicePort{web: {30200, 1}, api: {30201, 1}})
	eventually(t, "both open", func() bool { return answers("http://127.0.0.1:30200/") && answers("http://127.0.0.1:30201/") })

	h.Set(map[model.ServiceKey]ServicePort{api: {30200, 7}}) // the port of one goes to the other in the same turn
	eventually(t, "port handed over", func() bool {
		_, body, err := fetch("http://127.0.0.1:30200/")
		return err == nil && body == `{"service":{"namespace":"prod","name":"api"},"localEndpoints":7,"serviceProxyHealthy":true}`
	})
	eventually(t, "old port closed", func() bool { return !answers("http://127.0.0.1:30201/") })

	h.Set(nil)
	eventually(t, "all closed", func() bool { return !answers("http://127.0.0.1:30200/") })
	if got := errs.list(); len(got) != 0 {
		t.Errorf("bind errors %q", got)
	}
	h.Set(map[model.ServiceKey]ServicePort{web: {30200, 1}})
	eventually(t, "open again", func() bool { return answers("http://[::1]:30200/") })
}

func TestServiceAddresses(t *testing.T) {
	h, _ := newService(yes)
	start(t, h.Run)
	h.SetAddrs([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1")})
	h.Set(map[model.ServiceKey]ServicePort{web: {30300, 1}})
	eventually(t, "chosen address", func() bool { return answers("http://127.0.0.1:30300/") })
	if answers("http://127.0.0.2:30300/") || answers("http://[::1]:30300/") {
		t.Error("answers on an address that was not chosen")
	}
	h.SetAddrs([]netip.Addr{netip.MustParseAddr("127.0.0.2")})
	eventually(t, "moved", func() bool { return answers("http://127.0.0.2:30300/") && !answers("http://127.0.0.1:30300/") })
	h.SetAddrs(everywhere())
	eventually(t, "everywhere", func() bool { return answers("http://127.0.0.1:30300/") && answers("http://[::1]:30300/") })
	h.SetAddrs(nil)
	eventually(t, "nowhere", func() bool { return !answers("http://127.0.0.1:30300/") && !answers("http://[::1]:30300/") })
}

// Before any address is known nothing is opened, and addresses of a family that the node does not serve are left out.
func TestServiceAddressesNotKnown(t *testing.T) {
	h, _ := newService(yes)
	h.p.Families = []model.Family{model.IPv4}
	h.Set(map[model.ServiceKey]ServicePort{web: {30300, 1}})
	if got := h.wanted(); len(got) != 0 {
		t.Errorf("not known: opens %v", got)
	}
	h.SetAddrs(everywhere())
	want := socket{claim{web, 30300}, netip.IPv4Unspecified()}
	if got := h.wanted(); len(got) != 1 || !got[want] {
		t.Errorf("every address, IPv4 only: opens %v, want %v", got, want)
	}
}

func TestServiceBindErrorIsReportedOnceAndTheRestServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:30400")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	h, errs := newService(yes)
	start(t, h.Run)
	h.SetAddrs([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")})
	h.Set(map[model.ServiceKey]ServicePort{web: {30400, 1}, api: {30401, 1}})
	eventually(t, "others open", func() bool { return answers("http://[::1]:30400/") && answers("http://127.0.0.1:30401/") })
	for range 3 { // each Set tries again, but says nothing new
		h.Set(map[model.ServiceKey]ServicePort{web: {30400, 2}, api: {30401, 2}})
	}
	eventually(t, "reported", func() bool { return len(errs.list()) > 0 })
	if got := errs.list(); len(got) != 1 || got[0] != "default/web 30400" {
		t.Errorf("reported %q", got)
	}
	_ = l.Close()
	h.Set(map[model.ServiceKey]ServicePort{web: {30400, 3}})
	eventually(t, "bound once it is free", func() bool { return answers("http://127.0.0.1:30400/") })
}

func TestServiceTriesAgainByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, errs := newService(yes)
		begin, tries := time.Now(), []time.Duration{}
		h.listen = func(context.Context, string, string) (net.Listener, error) {
			tries = append(tries, time.Since(begin))
			if len(tries) < 3 {
				return nil, net.ErrClosed
			}
			return newPipe(), nil
		}
		h.SetAddrs([]netip.Addr{netip.MustParseAddr("127.0.0.1")})
		h.Set(map[model.ServiceKey]ServicePort{web: {30500, 1}})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(tries) != 3 || tries[2]-tries[1] != 5*time.Second {
			t.Errorf("tried at %v", tries)
		}
		if got := errs.list(); len(got) != 1 {
			t.Errorf("reported %q", got)
		}
	})
}
