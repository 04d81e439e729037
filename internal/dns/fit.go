package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
)

const (
	lookAroundEvery  = time.Second
	checkDomainEvery = 30 * time.Second
)

// Fit returns why the queries of other servers' clients should not be redirected to this
// server; nil if they should. It is cheap.
func (s *Server) Fit() error {
	switch {
	case !s.cfg.Store.Synced():
		return errors.New("the Services of the cluster have not been read yet")
	case s.cfg.Stale():
		return errors.New("the API server has not answered for longer than --dns-max-stale")
	case len(s.forward.upstreams()) == 0:
		return errors.New("no upstream server for names outside the cluster: resolv.conf lists none, and --dns-upstream is not set")
	}
	if s.cfg.ClusterService.Name == "" {
		return nil
	}
	check := s.domain.Load()
	if check == nil {
		return errors.New("the domain of the cluster's DNS has not been checked yet")
	}
	return check.disagrees
}

// knowsCluster reports whether this server answers for the cluster domain itself.
// Stale names are still better than none.
func (s *Server) knowsCluster() bool {
	if !s.cfg.Store.Synced() {
		s.cluster.follow(s.clusterServers())
		return false
	}
	return !s.stale.Load() || len(s.cluster.upstreams()) == 0 || s.cluster.dead()
}

// knowsName reports whether a name of the cluster domain exists in sources that cannot be read completely (Store.Listed).
func (s *Server) knowsName(q *query) bool {
	return !s.cfg.Store.Synced() && s.cfg.Store.Listed() && s.resolve(q).rcode == dns.RcodeSuccess
}

// clusterServers returns the addresses of the cluster's DNS, without those of this server.
func (s *Server) clusterServers() []netip.AddrPort {
	return slices.DeleteFunc(s.cfg.Cluster(), func(a netip.AddrPort) bool { return slices.Contains(s.cfg.listen(), a) })
}

// follow sets the list of servers, if it differs from the present one.
func (f *forwarder) follow(list []netip.AddrPort) {
	if !f.has(list) {
		f.setServers(list)
	}
}

// lookAround updates what the answers depend on in addition to the Store.
func (s *Server) lookAround(ctx context.Context) {
	tick := time.NewTicker(lookAroundEvery)
	defer tick.Stop()
	for {
		s.stale.Store(s.cfg.Stale())
		s.cluster.follow(s.clusterServers())
		s.refreshUpstreams()
		if s.cfg.LastHeard != nil {
			if at := s.cfg.LastHeard(); !at.IsZero() {
				s.metrics.watchAge.Set(s.cfg.Now().Sub(at).Seconds())
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// refreshUpstreams reads resolv.conf: it may be written after the start, and
// changes when the node's network does. A file that cannot be read changes nothing.
func (s *Server) refreshUpstreams() {
	if s.cfg.ResolvConf == "" {
		return
	}
	list, err := UpstreamsOf(s.cfg.ResolvConf)
	if err != nil {
		return
	}
	list = slices.DeleteFunc(list, func(a netip.AddrPort) bool { return slices.Contains(s.cfg.listen(), a) })
	if s.forward.has(list) {
		return
	}
	s.forward.setServers(list)
	s.cfg.Log.Info("forwarding names outside the cluster", "servers", list, "from", s.cfg.ResolvConf)
}

// domainCheck is the answer of the cluster's DNS about Config.Domain.
type domainCheck struct{ disagrees error }

// checkDomain periodically asks the cluster's DNS for its own name in Config.Domain:
// if it has no such name, Domain is wrong, and cluster names would be sent to the
// servers for other names.
func (s *Server) checkDomain(ctx context.Context) {
	if s.cfg.ClusterService.Name == "" {
		return
	}
	key := s.cfg.ClusterService
	name := key.Name + "." + key.Namespace + ".svc" + s.zone.suffix
	tick := time.NewTicker(lookAroundEvery)
	defer tick.Stop()
	var next time.Time
	said := ""
	for {
		if servers := s.clusterServers(); len(servers) > 0 && s.cfg.Store.Synced() && !s.cfg.Now().Before(next) {
			check := &domainCheck{disagree(ctx, name, servers)}
			if text := fmt.Sprint(check.disagrees); ctx.Err() == nil && check.disagrees != nil && text != said && len(s.cfg.Intercepted) == 0 {
				s.cfg.Log.Warn("--dns-domain may be wrong", "reason", check.disagrees)
				said = text
			}
			s.domain.Store(check)
			next = s.cfg.Now().Add(checkDomainEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// disagree asks servers for name. It returns an error only for a clear "no such name":
// a server that does not answer is no reason to stop serving.
func disagree(ctx context.Context, name string, servers []netip.AddrPort) error {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	m.SetEdns0(maxUDPAnswer, false)
	for _, server := range servers {
		once, cancel := context.WithTimeout(ctx, tryTimeout)
		answer, err := ask(once, server, m)
		cancel()
		if err == nil && answer.Rcode == dns.RcodeNameError {
			return fmt.Errorf("the cluster's DNS at %s does not have the name %s: --dns-domain is not the cluster's domain", server.Addr(), name)
		}
	}
	return nil
}
