package config

import (
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// DNS are the settings of the node-local DNS server; no Addrs = off.
type DNS struct {
	Addrs          []netip.AddrPort
	Domain         string
	Upstreams      []netip.AddrPort // empty: those of the node's /etc/resolv.conf
	ClusterService string           // namespace/name of the cluster's own DNS Service
	Intercept      bool             // pods' queries for ClusterService come to Addrs
	Park           time.Duration    // 0: only Services that ask for it by annotation
	PodRecords     bool
}

// ownFlags are Fairlead's, next to kube-proxy's. They hold beside --config too:
// its file has no fields for them.
type ownFlags struct {
	resetGone                   bool
	dnsAddrs, dnsUpstreams      []string
	dnsDomain, dnsService       string
	dnsIntercept, dnsPodRecords bool
	dnsPark                     time.Duration
}

// ownNames are those that --config does not make void.
func ownNames() []string {
	return []string{"manifests", "reset-gone-endpoints", "dns-address", "dns-upstream", "dns-domain", "dns-cluster-service",
		"dns-intercept", "dns-pod-records", "dns-park", "iptables-backend"}
}

func (f *Flags) addOwn(fs *pflag.FlagSet) {
	o := &f.own
	fs.BoolVar(&o.resetGone, "reset-gone-endpoints", false, "end open TCP connections to endpoints that no longer exist; terminating endpoints finish theirs")
	fs.StringSliceVar(&o.dnsAddrs, "dns-address", nil, "IP or IP:port on which to answer DNS for this node, from what the agent knows; empty: no DNS server")
	fs.StringVar(&o.dnsDomain, "dns-domain", "cluster.local", "cluster domain of the DNS server")
	fs.StringSliceVar(&o.dnsUpstreams, "dns-upstream", nil, "IP or IP:port of the servers for all other names; empty: those of /etc/resolv.conf")
	fs.StringVar(&o.dnsService, "dns-cluster-service", "kube-system/kube-dns", "the cluster's own DNS Service, which --dns-intercept takes over on this node")
	fs.BoolVar(&o.dnsIntercept, "dns-intercept", false, "lead this node's pods' queries for the cluster DNS Service to the DNS server here, for as long as it is healthy")
	fs.DurationVar(&o.dnsPark, "dns-park", time.Second, "longest wait for a name of a headless Service that is expected but not there yet; 0: only where the annotation fairlead.dev/dns-park asks")
	fs.BoolVar(&o.dnsPodRecords, "dns-pod-records", false, "answer a-b-c-d.namespace.pod names, which the DNS specification 1.1.0 dropped")
}

// fillOwn checks and takes over our own settings.
func (f *Flags) fillOwn(c *Config, v *validator) {
	o := &f.own
	c.ResetGoneEndpoints = o.resetGone
	c.DNS = DNS{Addrs: v.dnsAddrs("dns-address", o.dnsAddrs), Upstreams: v.dnsAddrs("dns-upstream", o.dnsUpstreams), Domain: o.dnsDomain,
		ClusterService: o.dnsService, Intercept: o.dnsIntercept, Park: o.dnsPark, PodRecords: o.dnsPodRecords}
	if ns, name, ok := strings.Cut(o.dnsService, "/"); !ok || ns == "" || name == "" {
		v.badOwn("dns-cluster-service", o.dnsService, "is not namespace/name")
	}
	if o.dnsPark < 0 || o.dnsPark > 4*time.Second {
		v.badOwn("dns-park", o.dnsPark.String(), "must be within 0s and 4s: resolvers ask again after 5s")
	}
	if o.dnsIntercept && len(c.DNS.Addrs) == 0 {
		v.badOwn("dns-intercept", "true", "needs --dns-address")
	}
}

// dnsAddrs reads addresses with an optional port, 53 if none.
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

func (v *validator) badOwn(flag, value, reason string) {
	v.errs = append(v.errs, &FieldError{Field: flag, Flag: flag, Value: value, Reason: reason})
}
