package userspace

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
)

// ports opens the routing rules of the test's namespace.
func ports(t *testing.T) *link.Ports {
	t.Helper()
	p, err := link.OpenPorts()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fakePorts are routing rules without a kernel.
type fakePorts struct {
	mu   sync.Mutex
	list []link.Port
}

func (p *fakePorts) Add(s link.Port) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.DeleteFunc(p.list, func(b link.Port) bool { return s.Server == b.Server }), s)
	return nil
}

func (p *fakePorts) Delete(s link.Server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(b link.Port) bool { return s == b.Server })
	return nil
}

func (p *fakePorts) List() ([]link.Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list), nil
}

func (p *fakePorts) Watch(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}

// Of an address that may be another host's only the Service's protocol and port is delivered here, and a local route to the whole of it that
// an older version left goes, while connections of the Service go on by the rule (k3s#2804).
func TestOnlyThePortIsTaken(t *testing.T) {
	routes, err := link.OpenLocals()
	if err != nil {
		t.Fatal(err)
	}
	rules := ports(t)
	d := newDriver(t, Params{Plan: addressplan.Plan{Own: true}, Routes: routes, Ports: rules, Talks: link.Talks})
	at := netip.MustParseAddr("198.51.100.9")
	if err := routes.Add(at); err != nil { // as b6e3e2b did
		t.Fatal(err)
	}
	b := dataplanetest.NewBed(d, model.NodeView{})
	b.Load(t)
	b.Base()
	f := dataplanetest.ClusterIP(model.IPv4, 1, 1)
	f.Kind, f.Key.Addr, f.Key.Port = model.ExternalIP, at, 8088
	b.Want(f.Service, f)
	b.Sync(t)
	server := link.Server{At: netip.AddrPortFrom(at, 8088), Protocol: unix.IPPROTO_TCP}
	if list, err := rules.List(); err != nil || !slices.Equal(list, []link.Port{{Server: server}}) {
		t.Errorf("rules %v, %v; want %v", list, err, server)
	}
	gone, err := d.Drained(t.Context(), slices.Collect(b.Track.Lingering()))
	if err != nil || len(gone) != 1 || d.KeyString(gone[0]) != "local route 198.51.100.9" {
		t.Errorf("drained %v, %v; want the local route of the older version", gone, err)
	}
	if err := routes.Delete(at); err != nil { // as the engine has it done then
		t.Fatal(err)
	}
	for port, want := range map[string]bool{"8088": true, "22": false} {
		out, err := exec.Command("ip", "route", "get", at.String(), "ipproto", "tcp", "dport", port).CombinedOutput()
		if got := strings.HasPrefix(string(out), "local "); got != want {
			t.Errorf("port %s is delivered here: %v (%s, %v)", port, got, out, err)
		}
	}
	b.Want(f.Service)
	b.Sync(t)
	if gone, err := d.Drained(t.Context(), slices.Collect(b.Track.Lingering())); err != nil || len(gone) == 0 {
		t.Errorf("drained %v, %v; want the rule", gone, err)
	}
}
