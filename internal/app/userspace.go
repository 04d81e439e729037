package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/addressplan"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/handover"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// rootless is the state of userspace mode next to its driver. A mode that has one writes
// nothing to the kernel: it sets no sysctl, changes no conntrack entry and removes no rules.
type rootless struct {
	plan   addressplan.Plan
	relay  *relay.Relay
	driver *userspace.Driver
	table  *placeTable // nil without --userspace-map
	warn   func(svc model.ServiceKey, reason, text string)

	become func()        // reports that a successor is the agent now
	heir   bool          // this process is the successor of a running agent
	begun  chan struct{} // closed when this process listens, and its predecessor does not any more
	given  *handover.Given

	noSource string // why no client's address can be kept; "" if it can
}

func openUserspace(ctx context.Context, cfg *config.Config) (opened, error) {
	log := newLogger(cfg.Logging).Logger
	r := &rootless{begun: make(chan struct{}), warn: func(model.ServiceKey, string, string) {}}
	p := userspace.Params{Log: log, OnBindError: func(svc model.ServiceKey, err error) { r.warn(svc, "FailedToListen", err.Error()) }}
	var err error
	if p.Plan, p.Routes, err = addresses(ctx, cfg.Userspace.Addresses); err != nil {
		return opened{}, err
	}
	if p.Plan.Own {
		if p.Ports, err = link.OpenPorts(); err != nil {
			return opened{}, err
		}
	}
	p.Notes = notes(p.Plan, cfg)
	s := keepSources(p.Routes)
	p.Returns, p.Sources, r.noSource = s.returns, s.families, s.why
	if p.LingerBlind = cmp.Or(cfg.Userspace.EndpointGrace, 24*time.Hour); p.Routes != nil {
		p.Talks = talks(log)
	}
	p.Relay = relay.New(relay.Params{MostOfOne: 2 * cfg.Userspace.ServiceConnections, EndGone: cfg.ResetGoneEndpoints,
		EndpointGrace: cfg.Userspace.EndpointGrace, Log: log, OnLoop: func(svc model.ServiceKey, at netip.AddrPort, err error) {
			r.warn(svc, "EndpointLeadsBack", "endpoint "+at.String()+": "+err.Error())
		}})
	r.plan, r.relay, r.driver = p.Plan, p.Relay, userspace.New(p)
	if cfg.Userspace.Map != "" {
		r.table = &placeTable{file: cfg.Userspace.Map, plan: p.Plan, rows: map[model.FrontendKey]string{}}
	}
	return opened{driver: r.driver, reads: func() int { return 0 }, rootless: r}, nil
}

// talks returns the function that lists the open connections; nil if the kernel does not support that.
func talks(log *slog.Logger) func() ([]link.Talk, error) {
	if _, err := link.Talks(); err != nil {
		log.Warn("cannot list open connections on this kernel; routes and addresses of removed Services and endpoints stay for --userspace-endpoint-grace", "error", err)
		return nil
	}
	return link.Talks
}

// addresses returns the plan of the addresses at which Services can be answered.
func addresses(ctx context.Context, asked string) (addressplan.Plan, userspace.Routes, error) {
	plan := addressplan.Plan{FirstPort: firstPort(ctx)}
	if asked == "loopback" || asked == "" && !ownNamespace() {
		return plan, nil, nil
	}
	routes, err := link.OpenLocals()
	if err == nil {
		probe := netip.AddrFrom4([4]byte{192, 0, 0, 8}) // reserved: no host has it (RFC 7600)
		if err = routes.Add(probe); err == nil {
			err = routes.Delete(probe)
		}
	}
	if err != nil && asked == "" {
		return plan, nil, nil
	}
	if err != nil {
		return plan, nil, fmt.Errorf("--userspace-addresses service needs CAP_NET_ADMIN here: %w", err)
	}
	plan.Own = true
	return plan, routes, nil
}

// ownNamespace reports whether this process is in a user namespace: there it can change
// only the network of its own namespace.
func ownNamespace() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
}

// firstPort returns the lowest port that may be bound. It tries to bind port 1 first.
func firstPort(ctx context.Context) uint16 {
	l, err := new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:1")
	if err == nil {
		_ = l.Close()
		return 1
	}
	const usual = 1024
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 16)
	if err != nil {
		return usual
	}
	return uint16(n)
}

// notes returns what the operator should know.
func notes(p addressplan.Plan, cfg *config.Config) (out []string) {
	if !p.Own {
		out = append(out, "userspace mode: Services are answered on addresses in 127.0.0.0/8, NodePorts on localhost; --userspace-map FILE lists them")
		if p.FirstPort > 1 {
			out = append(out, fmt.Sprintf("userspace mode: this user may not bind ports below %d: the agent adds 10000 to them, such as 80 to 10080", p.FirstPort))
		}
	}
	if m := cfg.DetectLocal.Mode; m == config.BridgeInterface || m == config.InterfaceNamePrefix {
		out = append(out, fmt.Sprintf("userspace mode: detectLocalMode %s recognises pods by the interface of a packet, which a socket does not have: no client is recognised as a pod", m))
	}
	return out
}

// addUserspace adds the metrics and Events that only this mode has.
func (a *agent) addUserspace() error {
	r := a.rootless
	if a.recorder != nil {
		r.warn = func(svc model.ServiceKey, reason, text string) { a.recorder.Warn(svc, reason, text) }
	}
	return a.metrics.Registerer().Register(&relayCollector{r})
}

// forNames returns an event for the DNS server: names resolve to the addresses at which
// Services are answered.
func (a *agent) forNames(ev model.Event) model.Event {
	if a.rootless == nil || ev.Service == nil {
		return ev
	}
	ev.Service = &model.Keyed[model.ServiceKey, model.Service]{Key: ev.Service.Key, Value: a.rootless.plan.Service(ev.Service.Value)}
	return ev
}

// mapAddresses updates the file of --userspace-map after a sync.
func (f *follower) mapAddresses(t *engine.Turn) {
	r := f.a.rootless
	if r == nil || r.table == nil {
		return
	}
	if err := r.table.update(frontends(t.Decided), t.Gone); err != nil {
		f.a.log.Warn("cannot write the file of --userspace-map; trying again with the next change", "error", err)
	}
}
