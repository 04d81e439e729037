package dns

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// kind is what sort of Service a view is of.
type kind uint8

const (
	clusterIP kind = iota + 1
	headless
	external
)

// String is the value of the metric label service_kind.
func (k kind) String() string {
	return [...]string{"none", "cluster_ip", "headless", "external_name"}[k]
}

// memory is how long a hostname that was published counts as about to come
// back: the time a restart of its pod takes (headless-dns, parking rules).
const memory = 10 * time.Minute

// maxLeft bounds the hostnames remembered for one Service.
const maxLeft = 1024

// view is one Service as queries see it. It never changes once it is made.
type view struct {
	kind     kind
	service  *model.Service
	created  time.Time
	addrs    addrs            // of the Service's own name
	hosts    map[string]addrs // headless: published hostnames
	srv      map[srvKey][]target
	notReady map[string][]netip.Addr // in a slice, but not published
	left     map[string]time.Time    // published once, and when that ended
	external string                  // FQDN
}

// addrs are the addresses behind one name.
type addrs struct{ v4, v6 []netip.Addr }

func (a *addrs) add(ip netip.Addr) {
	list := &a.v6
	if ip.Is4() {
		list = &a.v4
	}
	*list = append(*list, ip)
}

func (a *addrs) empty() bool { return len(a.v4)+len(a.v6) == 0 }

type srvKey struct {
	port     string
	protocol model.Protocol
}

// target is one SRV record; host "" means the Service's own name.
type target struct {
	host string
	port uint16
}

func newView(r *record) *view {
	svc := r.service
	v := &view{service: svc, created: r.seen}
	if svc.Created != 0 {
		v.created = time.Unix(svc.Created, 0)
	}
	switch {
	case svc.ExternalName != "":
		v.kind, v.external = external, strings.ToLower(svc.ExternalName)+"."
	case svc.Headless:
		v.kind = headless
		v.left = copyTimes(r.left)
		v.fillHeadless(r.slices)
	default:
		v.kind = clusterIP
		v.fillClusterIP()
	}
	return v
}

func (v *view) fillClusterIP() {
	for _, ip := range v.service.ClusterIPs {
		v.addrs.add(ip)
	}
}

// targets gives what an SRV record of the port leads to. A Service with a cluster
// IP has no map for that: there are many of them, and few are asked for it.
func (v *view) targets(k srvKey) []target {
	if v.kind != clusterIP {
		return v.srv[k]
	}
	for _, p := range v.service.Ports {
		if p.Name == k.port && p.Protocol == k.protocol && !v.addrs.empty() {
			return []target{{"", p.Port}}
		}
	}
	return nil
}

// speaks tells whether some SRV record is of the protocol.
func (v *view) speaks(label string) bool {
	for k := range v.srv {
		if protocolLabel(k.protocol) == label {
			return true
		}
	}
	return v.kind == clusterIP && slices.ContainsFunc(v.service.Ports, func(p model.ServicePort) bool {
		return p.Name != "" && protocolLabel(p.Protocol) == label
	})
}

// fillHeadless publishes every endpoint whose condition ready holds. The
// controller sets it for all of them under publishNotReadyAddresses, so the
// Service's field is not looked at again.
func (v *view) fillHeadless(sls []*model.Slice) {
	v.hosts, v.notReady = map[string]addrs{}, map[string][]netip.Addr{}
	seen := map[netip.Addr]bool{}
	srv := map[srvKey]map[target]bool{}
	for _, sl := range sls {
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			name := hostOf(e)
			if !e.Ready {
				v.notReady[name] = append(v.notReady[name], e.Addr)
				continue
			}
			if !seen[e.Addr] {
				seen[e.Addr] = true
				v.addrs.add(e.Addr)
			}
			if a := v.hosts[name]; !slices.Contains(a.v4, e.Addr) && !slices.Contains(a.v6, e.Addr) {
				a.add(e.Addr)
				v.hosts[name] = a
			}
			v.endpointSRV(srv, sl.Ports, name)
		}
	}
	for name := range v.hosts {
		delete(v.notReady, name)
		delete(v.left, name)
	}
}

// endpointSRV adds one SRV record for each named port. It takes a set because
// a Service of 5000 endpoints must not be searched 5000 times.
func (v *view) endpointSRV(seen map[srvKey]map[target]bool, ports []model.SlicePort, host string) {
	for _, p := range ports {
		k, t := srvKey{p.Name, p.Protocol}, target{host, p.Port}
		if p.Name == "" || seen[k][t] {
			continue
		}
		if seen[k] == nil {
			seen[k] = map[target]bool{}
		}
		seen[k][t] = true
		if v.srv == nil {
			v.srv = map[srvKey][]target{}
		}
		v.srv[k] = append(v.srv[k], t)
	}
}

// hostOf gives an endpoint's label: its hostname, else its address with dashes,
// which is the identifier that CoreDNS makes up too.
func hostOf(e *model.Endpoint) string {
	if e.Hostname != "" {
		return strings.ToLower(e.Hostname)
	}
	label := strings.Map(dash, e.Addr.String())
	if label[0] == '-' || label[len(label)-1] == '-' { // no label looks so: fe80::
		label = strings.Map(dash, e.Addr.StringExpanded())
	}
	return label
}

func dash(r rune) rune {
	if r == '.' || r == ':' {
		return '-'
	}
	return r
}

// eachAddr calls f with what has a PTR record.
func (v *view) eachAddr(f func(netip.Addr, string)) {
	if v == nil {
		return
	}
	each := func(a addrs, host string) {
		for _, ip := range a.v4 {
			f(ip, host)
		}
		for _, ip := range a.v6 {
			f(ip, host)
		}
	}
	if v.kind == clusterIP {
		each(v.addrs, "")
	}
	for name, a := range v.hosts {
		each(a, name)
	}
}

// leavers adds the hostnames of the last view to those that left, and forgets
// the old ones. newView takes away what is still there.
func leavers(left map[string]time.Time, last *view, now time.Time) map[string]time.Time {
	for name, at := range left {
		if now.Sub(at) > memory {
			delete(left, name)
		}
	}
	if last == nil {
		return left
	}
	for name := range last.hosts {
		if left == nil {
			left = map[string]time.Time{}
		}
		if len(left) < maxLeft+len(last.hosts) {
			left[name] = now
		}
	}
	return left
}

func copyTimes(m map[string]time.Time) map[string]time.Time {
	out := make(map[string]time.Time, min(len(m), maxLeft))
	for k, t := range m {
		if len(out) == maxLeft {
			break
		}
		out[k] = t
	}
	return out
}
