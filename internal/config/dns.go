package config

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// DNS holds the settings of the node-local DNS server; no Addrs = off.
type DNS struct {
	Addrs          []netip.AddrPort
	Domain         string
	Upstreams      []netip.AddrPort // empty: those of the node's /etc/resolv.conf
	ClusterService string           // namespace/name of the cluster's own DNS Service
	ClusterAddrs   []netip.AddrPort // its addresses, used until the Service has been read
	Intercept      bool             // pods' queries for ClusterService are redirected to Addrs
	Park           time.Duration    // 0: only for Services that request it by annotation
	PodRecords     bool
	Allow          []netip.Prefix // clients that may query, in addition to the node; nil = its pods
	ClientRate     int            // queries per second of one client; 0 = no bound
	StatusForAll   bool
	MaxStale       time.Duration // maximum age of names after the API server was lost; 0 = no limit
}

// dnsFlags holds the flags of DNS.
type dnsFlags struct {
	addrs, upstreams, clusterAddrs      []string
	domain, service                     string
	intercept, podRecords, statusForAll bool
	park, maxStale                      time.Duration
	allow                               []string
	clientRate                          int
}

func dnsNames() []string {
	return []string{"dns-address", "dns-upstream", "dns-domain", "dns-cluster-service", "dns-cluster-address", "dns-intercept", "dns-pod-records",
		"dns-park", "dns-allow", "dns-client-rate", "dns-status-for-all", "dns-max-stale"}
}

func (o *dnsFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.addrs, "dns-address", nil, "IP or IP:port on which to answer DNS for this node, from the Services that the agent has read; empty: no DNS server")
	fs.StringVar(&o.domain, "dns-domain", "cluster.local", "cluster domain of the DNS server")
	fs.StringSliceVar(&o.upstreams, "dns-upstream", nil, "IP or IP:port of the servers for all other names; empty: those of /etc/resolv.conf, which is read again when it changes")
	fs.StringVar(&o.service, "dns-cluster-service", "kube-system/kube-dns", "the cluster's own DNS Service, which --dns-intercept takes over on this node")
	fs.StringSliceVar(&o.clusterAddrs, "dns-cluster-address", nil, "IP or IP:port of the cluster's own DNS Service, to ask there for cluster names until the agent has read them; empty: cluster names cannot be answered before the Service has been read")
	fs.BoolVar(&o.intercept, "dns-intercept", false, "redirect this node's pods' queries for the cluster DNS Service to the DNS server here, as long as it is healthy")
	fs.DurationVar(&o.park, "dns-park", time.Second, "longest wait for a name of a headless Service that is expected but not published yet; 0: only for Services with the annotation fairlead.dev/dns-park")
	fs.BoolVar(&o.podRecords, "dns-pod-records", true, "answer a-b-c-d.namespace.pod names with the address in the name, as CoreDNS does with 'pods insecure'")
	fs.StringSliceVar(&o.allow, "dns-allow", nil, "CIDRs of clients that may query the DNS server, in addition to this node; empty: this node's pods (the Node's podCIDRs, or --cluster-cidr if these are incomplete), and the clients that --dns-intercept redirects")
	fs.IntVar(&o.clientRate, "dns-client-rate", 20000, "queries per second that one client of the DNS server may send; 0: no limit. The node itself has no limit")
	fs.BoolVar(&o.statusForAll, "dns-status-for-all", false, "report to every client, not only to pods that are endpoints in the Service's namespace, which endpoints of a Service are not ready (for 'fairlead wait')")
	fs.DurationVar(&o.maxStale, "dns-max-stale", 5*time.Minute, "how long names are served from the last known state after the connection to the API server was lost; then the interception ends, and cluster names are forwarded to the cluster's own DNS. 0: without limit")
}

// fill validates the flags and returns the settings.
func (o *dnsFlags) fill(v *validator) DNS {
	d := DNS{Addrs: v.dnsAddrs("dns-address", o.addrs), Upstreams: v.dnsAddrs("dns-upstream", o.upstreams), Domain: o.domain,
		ClusterService: o.service, ClusterAddrs: v.dnsAddrs("dns-cluster-address", o.clusterAddrs), Intercept: o.intercept, Park: o.park,
		PodRecords: o.podRecords, ClientRate: o.clientRate, StatusForAll: o.statusForAll, MaxStale: o.maxStale}
	for _, s := range o.allow {
		p, err := netip.ParsePrefix(s)
		if err != nil || p != p.Masked() {
			v.badOwn("dns-allow", s, "is not a CIDR such as 10.244.0.0/16")
			continue
		}
		d.Allow = append(d.Allow, p)
	}
	if o.intercept && len(d.Addrs) == 0 {
		v.badOwn("dns-intercept", "true", "needs --dns-address")
	}
	o.check(v)
	return d
}

func (o *dnsFlags) check(v *validator) {
	if ns, name, ok := strings.Cut(o.service, "/"); !ok || ns == "" || name == "" {
		v.badOwn("dns-cluster-service", o.service, "is not namespace/name")
	}
	if o.park < 0 || o.park > 4*time.Second {
		v.badOwn("dns-park", o.park.String(), "must be within 0s and 4s: resolvers ask again after 5s")
	}
	if o.maxStale < 0 || o.maxStale > 0 && o.maxStale < 10*time.Second {
		v.badOwn("dns-max-stale", o.maxStale.String(), "must be 0 or at least 10s: a watch that is only reopened is not a lost connection")
	}
	if o.clientRate != 0 && o.clientRate < 10 {
		v.badOwn("dns-client-rate", strconv.Itoa(o.clientRate), "must be 0 or at least 10")
	}
}

// dnsAddrs parses addresses with an optional port, 53 if none.
func (v *validator) dnsAddrs(flag string, values []string) (out []netip.AddrPort) {
	for _, s := range values {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.AddrPortFrom(a, 53))
			continue
		}
		ap, err := netip.ParseAddrPort(s)
		if err != nil || ap.Port() == 0 {
			v.badOwn(flag, s, "is not an IP or IP:port")
			continue
		}
		out = append(out, ap)
	}
	return out
}
