package wait

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	fairdns "github.com/fairlead/fairlead/internal/dns"
)

// nameServer is the pod's name server.
type nameServer struct {
	server    string // host:port
	domain    string // "cluster.local."
	namespace string // the pod's
}

const askTimeout = 2 * time.Second

// findNameServer reads the pod's resolv.conf: kubelet writes
// "search <namespace>.svc.<domain> svc.<domain> <domain> …".
func findNameServer(p *Params) (*nameServer, error) {
	conf, err := dns.ClientConfigFromFile(p.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.ResolvConf, err)
	}
	n := &nameServer{domain: "cluster.local.", namespace: p.Namespace, server: p.Server}
	for _, s := range conf.Search {
		namespace, domain, ok := strings.Cut(dns.Fqdn(s), ".svc.")
		if ok && !strings.Contains(namespace, ".") {
			n.domain = domain
			if n.namespace == "" {
				n.namespace = namespace
			}
			break
		}
	}
	if n.namespace == "" {
		return nil, usageError{fmt.Errorf("%s does not have the search list of a pod: set the namespace with -n", p.ResolvConf)}
	}
	if n.server == "" && len(conf.Servers) > 0 {
		n.server = net.JoinHostPort(conf.Servers[0], conf.Port)
	}
	if _, _, err := net.SplitHostPort(n.server); err != nil && n.server != "" {
		n.server = net.JoinHostPort(n.server, "53")
	}
	if n.server == "" {
		return nil, fmt.Errorf("%s contains no name server", p.ResolvConf)
	}
	return n, nil
}

func (n *nameServer) name(labels ...string) string {
	return strings.Join(labels, ".") + ".svc." + n.domain
}

// ask sends a query over TCP: a status may be long, and a closed port is refused at once.
func (n *nameServer) ask(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	return n.exchange(ctx, m, askTimeout)
}

func (n *nameServer) exchange(ctx context.Context, m *dns.Msg, timeout time.Duration) (*dns.Msg, error) {
	c := dns.Client{Net: "tcp", Timeout: timeout}
	conn, err := c.DialContext(ctx, n.server)
	if err != nil {
		return nil, fmt.Errorf("query %s for %s: %w", n.server, m.Question[0].Name, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // the client heeds the context while it connects only
	r, _, err := c.ExchangeWithConn(m, conn)
	if err != nil {
		return nil, fmt.Errorf("query %s for %s: %w", n.server, m.Question[0].Name, err)
	}
	return r, nil
}

// endpoint is one endpoint as the name server knows it.
type endpoint struct {
	host  string
	addr  netip.Addr
	state string // fairdns.State…
}

// status is the state of the Service as the name server reports it.
type status struct {
	fairlead bool // the server is Fairlead's: it counts by itself, and reports reasons
	exists   bool
	told     bool // the server reports endpoints that are not ready
	complete bool // fairlead: what was asked for is there
	cut      bool // not fairlead: there are more addresses than fit into an answer
	kind     string
	pods     int // ready
	waiting  int // pods that are not ready
	missing  []endpoint
	ready    []endpoint // if they were asked for
}

// status returns the state of one Service. Fairlead's server answers when what is asked
// for is there, or when q.Wait is over.
func (n *nameServer) status(ctx context.Context, p *Params, q fairdns.StatusQuestion) (*status, error) {
	st := &status{}
	for more := true; more; {
		r, err := n.askStatus(ctx, p, &q)
		if err != nil {
			return nil, err
		}
		if more = st.read(r, &q); st.fairlead {
			continue
		}
		if r.Rcode == dns.RcodeServerFailure {
			return nil, fmt.Errorf("query %s: it has not read the cluster's Services yet", n.server)
		}
		if r, err = n.ask(ctx, fairdns.StatusLabel+"."+n.domain, dns.TypeTXT); err != nil {
			return nil, err
		}
		if len(r.Answer) > 0 {
			return &status{fairlead: true}, nil // no such Service
		}
		return n.plainStatus(ctx, p)
	}
	return st, nil
}

func (n *nameServer) askStatus(ctx context.Context, p *Params, q *fairdns.StatusQuestion) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(fairdns.StatusLabel+"."+n.name(p.Service, n.namespace), dns.TypeTXT)
	m.SetEdns0(dns.DefaultMsgSize, false)
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, q.Option())
	return n.exchange(ctx, m, q.Wait+askTimeout)
}

// read takes an answer in. It reports whether there is another page, which q then asks for.
func (st *status) read(r *dns.Msg, q *fairdns.StatusQuestion) (more bool) {
	for _, rr := range r.Answer {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			continue
		}
		switch what, fields := fairdns.ParseStatus(txt.Txt); what {
		case "fairlead":
			st.fairlead, st.exists, st.kind = true, true, fields["kind"]
			st.complete, st.told = fields["complete"] == "true", fields["told"] == "true"
			st.pods, _ = strconv.Atoi(fields["pods"])
			st.waiting, _ = strconv.Atoi(fields["notready"])
		case "endpoint":
			addr, _ := netip.ParseAddr(fields["addr"])
			e := endpoint{fields["host"], addr, fields["state"]}
			if e.state == fairdns.StateReady {
				st.ready = append(st.ready, e)
			} else if q.From == 0 {
				st.missing = append(st.missing, e)
			}
		case "more":
			from, err := strconv.Atoi(fields["from"])
			more = err == nil && from > q.From
			q.From, q.Wait = from, 0
		}
	}
	return more
}

// plainStatus returns what any name server knows: which endpoints are published.
func (n *nameServer) plainStatus(ctx context.Context, p *Params) (*status, error) {
	st := &status{}
	hosts := p.Hostnames
	if len(hosts) == 0 || p.Endpoints > len(hosts) {
		hosts = append([]string{""}, hosts...)
	}
	seen := map[netip.Addr]bool{}
	for _, host := range slices.Backward(hosts) { // the Service's own name last: it repeats the others
		name := n.name(p.Service, n.namespace)
		if host != "" {
			name = host + "." + name
		}
		before := len(st.ready)
		if err := n.addresses(ctx, name, func(ip netip.Addr, cut bool) {
			st.cut = st.cut || cut
			if !seen[ip] {
				seen[ip], st.exists = true, true
				st.ready = append(st.ready, endpoint{host, ip, fairdns.StateReady})
			}
		}); err != nil {
			return nil, err
		}
		if host != "" && len(st.ready) == before {
			st.missing = append(st.missing, endpoint{host: host, state: fairdns.StateUntold})
		}
	}
	st.pods = countPods(st.ready)
	return st, nil
}

func countPods(list []endpoint) int {
	members := make([]fairdns.Member, len(list))
	for i, e := range list {
		members[i] = fairdns.Member{Host: e.host, Addr: e.addr}
	}
	return fairdns.CountPods(members)
}

// addresses calls each for every address of a name; cut reports that there are more.
func (n *nameServer) addresses(ctx context.Context, name string, each func(ip netip.Addr, cut bool)) error {
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		r, err := n.ask(ctx, name, qtype)
		if err != nil {
			return err
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
				each(addr.Unmap(), r.Truncated)
			}
		}
	}
	return nil
}
