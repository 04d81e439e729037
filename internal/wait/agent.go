package wait

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	fairdns "github.com/fairlead/fairlead/internal/dns"
)

// agent is the pod's name server.
type agent struct {
	server    string // host:port
	domain    string // "cluster.local."
	namespace string // the pod's
}

const askTimeout = 2 * time.Second

// findAgent reads the pod's resolv.conf: kubelet writes
// "search <namespace>.svc.<domain> svc.<domain> <domain> …".
func findAgent(p *Params) (*agent, error) {
	conf, err := dns.ClientConfigFromFile(p.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.ResolvConf, err)
	}
	a := &agent{domain: "cluster.local.", namespace: p.Namespace, server: p.Server}
	for _, s := range conf.Search {
		namespace, domain, ok := strings.Cut(dns.Fqdn(s), ".svc.")
		if ok && !strings.Contains(namespace, ".") {
			a.domain = domain
			if a.namespace == "" {
				a.namespace = namespace
			}
			break
		}
	}
	if a.namespace == "" {
		return nil, usageError{fmt.Errorf("%s has no search list of a pod: give the namespace with -n", p.ResolvConf)}
	}
	if a.server == "" && len(conf.Servers) > 0 {
		a.server = net.JoinHostPort(conf.Servers[0], conf.Port)
	}
	if _, _, err := net.SplitHostPort(a.server); err != nil && a.server != "" {
		a.server = net.JoinHostPort(a.server, "53")
	}
	if a.server == "" {
		return nil, fmt.Errorf("%s names no server", p.ResolvConf)
	}
	return a, nil
}

func (a *agent) name(labels ...string) string {
	return strings.Join(labels, ".") + ".svc." + a.domain
}

// ask asks over TCP: a status may be long, and a refused port says so at once.
func (a *agent) ask(ctx context.Context, proto, name string, qtype uint16) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	c := dns.Client{Net: proto, Timeout: askTimeout}
	r, _, err := c.ExchangeContext(ctx, m, a.server)
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", a.server, name, err)
	}
	return r, nil
}

// endpoint is one endpoint as the agent knows it.
type endpoint struct {
	host  string
	addr  netip.Addr
	state string // fairdns.State…
}

// status is what is known of the Service.
type status struct {
	fairlead  bool // the server knows endpoints that are not ready, too
	exists    bool
	kind      string
	endpoints []endpoint
}

// status asks for all there is to know of one Service.
func (a *agent) status(ctx context.Context, p *Params) (*status, error) {
	r, err := a.ask(ctx, "tcp", fairdns.StatusLabel+"."+a.name(p.Service, a.namespace), dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	st := &status{}
	for _, rr := range r.Answer {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			continue
		}
		switch what, fields := fairdns.ParseStatus(txt.Txt); what {
		case "fairlead":
			st.fairlead, st.exists, st.kind = true, true, fields["kind"]
		case "endpoint":
			addr, _ := netip.ParseAddr(fields["addr"])
			st.endpoints = append(st.endpoints, endpoint{fields["host"], addr, fields["state"]})
		}
	}
	if st.fairlead {
		return st, nil
	}
	if r.Rcode == dns.RcodeServerFailure {
		return nil, fmt.Errorf("ask %s: it has not read the cluster's Services yet", a.server)
	}
	if r, err = a.ask(ctx, "tcp", fairdns.StatusLabel+"."+a.domain, dns.TypeTXT); err != nil {
		return nil, err
	}
	if len(r.Answer) > 0 {
		return &status{fairlead: true}, nil // no such Service
	}
	return a.plainStatus(ctx, p)
}

// plainStatus is what any name server knows: who is published.
func (a *agent) plainStatus(ctx context.Context, p *Params) (*status, error) {
	st := &status{}
	hosts := p.Hostnames
	if len(hosts) == 0 || p.Endpoints > len(hosts) {
		hosts = append([]string{""}, hosts...)
	}
	seen := map[netip.Addr]bool{}
	for i := len(hosts) - 1; i >= 0; i-- { // the Service's own name last: it repeats the others
		name := a.name(p.Service, a.namespace)
		if hosts[i] != "" {
			name = hosts[i] + "." + name
		}
		addrs, err := a.addresses(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, ip := range addrs {
			if !seen[ip] {
				seen[ip], st.exists = true, true
				st.endpoints = append(st.endpoints, endpoint{hosts[i], ip, fairdns.StateReady})
			}
		}
	}
	return st, nil
}

func (a *agent) addresses(ctx context.Context, name string) (list []netip.Addr, err error) {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		r, err := a.ask(ctx, "tcp", name, qtype)
		if err != nil {
			return nil, err
		}
		for _, rr := range r.Answer {
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			}
			if addr, ok := netip.AddrFromSlice(ip); ok {
				list = append(list, addr.Unmap())
			}
		}
	}
	return list, nil
}
