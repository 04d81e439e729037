package property

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/inspect"
	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	kernelipvs "github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sysctl"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// TestMain runs all tests in one network namespace, because the goroutines of userspace mode cannot move into a test's own.
func TestMain(m *testing.M) { os.Exit(netnstest.Main(m)) }

// plane is a mode: its driver, in an empty network namespace, and the mode-specific parts of an agent.
type plane struct {
	driver    dataplane.Driver
	relays    bool   // the agent relays the connections
	scheduler string // selects the endpoints, so that no choice is random; "" if there is none
}

// question returns the request that an agent in this mode sends.
func (p *plane) question(to string, from netip.Addr, caps dataplane.Caps) inspect.Question {
	q := inspect.Question{Text: to, From: from, Device: func(netip.Addr) string { return "" }, DropsStrays: caps.DropsStrays, OwnsAddresses: caps.OwnsAddresses, Scheduler: p.scheduler}
	if p.relays {
		own := addressplan.Plan{Own: true}
		q.Answered, q.Asked = own.Sockets, own.Asked
	}
	return q
}

func byNFTables(t *testing.T) plane {
	return plane{driver: nftables.New(nftables.Params{Kernel: openInNewNamespace(t)})}
}

func byIPTables(t *testing.T, backend kernel.Backend) plane {
	ns := netnstest.Enter(t)
	programs, err := kernel.Installed(backend)
	check(t, err)
	k, err := kernel.Open(kernel.Config{Backend: backend, Programs: programs, Namespace: ns.FD()})
	check(t, err)
	return plane{driver: iptables.New(iptables.Params{Kernel: k})}
}

func byIPVS(t *testing.T) plane {
	rules := openInNewNamespace(t)
	servers, err := kernelipvs.Open(kernelipvs.Config{})
	if errors.Is(err, kernelipvs.ErrNoIPVS) {
		t.Skip("needs a kernel with IPVS: test/vm runs this test under two") // no IPVS in this kernel; make test fails if it skips there, too
	}
	check(t, err)
	t.Cleanup(func() { _ = servers.Close() })
	links, err := kernelipvs.OpenLink()
	check(t, err)
	t.Cleanup(links.Close)
	for _, c := range sysctl.IPVS(sysctl.New(), true, false) { // both kernels are newer than 5.8
		check(t, c.Err)
	}
	return plane{driver: ipvs.New(ipvs.Params{NFT: rules, IPVS: servers, Addresses: links, Drain: 15 * time.Minute}), scheduler: ipvs.DefaultScheduler}
}

func byUserspace(t *testing.T) plane {
	routes, err := link.OpenLocals()
	check(t, err)
	returns, err := link.OpenReturns(relay.FirstSourcePort, relay.LastSourcePort)
	check(t, err)
	r := relay.New(relay.Params{})
	ports, err := link.OpenPorts()
	check(t, err)
	d := userspace.New(userspace.Params{Relay: r, Plan: addressplan.Plan{Own: true}, Routes: routes, Ports: ports, Returns: returns, Sources: []model.Family{model.IPv4, model.IPv6}})
	t.Cleanup(func() {
		if err := d.Cleanup(context.Background()); err != nil { // the next world uses the same namespace
			t.Error(err)
		}
		r.Close()
	})
	return plane{driver: d, relays: true}
}
