package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/fairlead/fairlead/internal/model"
)

// MaxPark is the longest a query may wait. Resolvers ask again after 5 s
// (glibc, Go), and a few after 2 to 2.5 s.
const MaxPark = 4 * time.Second

// DefaultPark is how long a query for an expected headless name waits unless
// the Service sets another value: every known resolver waits 1.8 s before it retries.
const DefaultPark = time.Second

// Config configures a Server.
type Config struct {
	// Addrs are where the server listens, UDP and TCP. Each must be one specific
	// address: an answer must come from the address that was asked.
	Addrs []netip.AddrPort
	// Listen and ListenPacket open sockets; nil = net's.
	Listen       func(ctx context.Context, c net.ListenConfig, network, addr string) (net.Listener, error)
	ListenPacket func(ctx context.Context, c net.ListenConfig, network, addr string) (net.PacketConn, error)
	// Intercepted are addresses to listen on where only queries arrive that package
	// intercept has redirected: their senders have been verified to be pods.
	Intercepted []netip.AddrPort
	// Allow lists the prefixes that may ask, in addition to this node itself; nil = this
	// node's pods, as far as the Store knows their addresses.
	Allow []netip.Prefix
	// ClientRate is how many queries per second one client may ask; 0 = no bound.
	ClientRate int
	// StatusForAll shows all clients the endpoints that are not ready; see StatusLabel.
	StatusForAll bool
	// Domain is the cluster domain, "cluster.local" if empty.
	Domain string
	// Upstreams answer for all other names; none: such queries are refused.
	Upstreams []netip.AddrPort
	// ResolvConf is a file from which Upstreams are read periodically; "" = never.
	ResolvConf string
	// Cluster returns the present addresses of the cluster's own DNS (its Service's):
	// it is asked for cluster names for as long as this server does not know them.
	// nil or none: SERVFAIL.
	Cluster func() []netip.AddrPort
	// ClusterService is the cluster's DNS Service, whose name is asked at Cluster to
	// find out whether Domain is the cluster's; empty = do not ask.
	ClusterService model.ServiceKey
	// Stale reports that the Store's names are too old to be served while Cluster is
	// there to ask; nil = never.
	Stale func() bool
	// Park is how long queries for expected names may wait: 0 = DefaultPark,
	// negative = not at all unless the Service has the annotation.
	Park time.Duration
	// PodRecords turns on a-b-c-d.<ns>.pod.<domain>, which specification 1.1.0 dropped.
	PodRecords bool
	// Healthy reports whether the Store's sources are up to date. While they are not,
	// nothing is parked. nil = always.
	Healthy func() bool
	// LastHeard is for the metric watch_age_seconds; nil = not known.
	LastHeard func() time.Time

	Store   *Store
	Metrics *Metrics // nil = none
	Log     *slog.Logger
	Now     func() time.Time // nil = time.Now
}

func (c *Config) fill() error {
	if c.Store == nil {
		return errors.New("configure DNS: no store")
	}
	if c.Domain == "" {
		c.Domain = "cluster.local"
	}
	if _, ok := dns.IsDomainName(c.Domain); !ok {
		return fmt.Errorf("configure DNS: %q is not a domain name", c.Domain)
	}
	if err := c.checkAddrs(); err != nil {
		return err
	}
	switch {
	case c.Park == 0:
		c.Park = DefaultPark
	case c.Park < 0:
		c.Park = 0
	case c.Park > MaxPark:
		return fmt.Errorf("configure DNS: parking for %s is longer than the resolvers' timeout of %s", c.Park, MaxPark)
	}
	c.fillOptional()
	return nil
}

func (c *Config) fillOptional() {
	if c.Metrics == nil {
		c.Metrics = c.Store.metrics
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Cluster == nil {
		c.Cluster = func() []netip.AddrPort { return nil }
	}
	if c.Listen == nil {
		c.Listen = func(ctx context.Context, l net.ListenConfig, network, addr string) (net.Listener, error) {
			return l.Listen(ctx, network, addr)
		}
	}
	if c.ListenPacket == nil {
		c.ListenPacket = func(ctx context.Context, l net.ListenConfig, network, addr string) (net.PacketConn, error) {
			return l.ListenPacket(ctx, network, addr)
		}
	}
	if c.Stale == nil {
		c.Stale = func() bool { return false }
	}
}

// checkAddrs rejects addresses that cannot be answered from, and the forwarding loop that
// the configuration alone shows.
func (c *Config) checkAddrs() error {
	if len(c.Addrs) == 0 {
		return errors.New("configure DNS: no address to listen on")
	}
	for _, a := range c.listen() {
		if !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			return fmt.Errorf("configure DNS: %s is not a specific address and port", a)
		}
	}
	for _, u := range c.Upstreams {
		if slices.Contains(c.listen(), u) {
			return fmt.Errorf("configure DNS: upstream %s is this server itself", u)
		}
	}
	return nil
}

func (c *Config) listen() []netip.AddrPort { return slices.Concat(c.Addrs, c.Intercepted) }

// UpstreamsOf returns the name servers of a resolv.conf.
func UpstreamsOf(path string) ([]netip.AddrPort, error) {
	conf, err := dns.ClientConfigFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read name servers from %s: %w", path, err)
	}
	var out []netip.AddrPort
	for _, s := range conf.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.AddrPortFrom(a.Unmap(), 53))
		}
	}
	return out, nil
}
