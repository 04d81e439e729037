package app

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/userspace"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// sources are the ways to keep clients' addresses towards endpoints (the annotation
// fairlead.dev/source-address), in the families in which there is one.
type sources struct {
	returns  userspace.Returns
	families []model.Family
	why      string // there is none
}

// keepSources returns the ways that work in a test with packets. routes are nil where the
// agent does not own its network namespace.
func keepSources(routes userspace.Routes) (s sources) {
	if routes == nil {
		s.why = "the agent needs a network namespace of its own, with CAP_NET_ADMIN in it (--userspace-addresses service)"
		return s
	}
	returns, err := link.OpenReturns(relay.FirstSourcePort, relay.LastSourcePort)
	if err != nil {
		s.why = err.Error()
		return s
	}
	var problems []error
	// Reserved addresses, which no host has: RFC 7600, 2544 and 6666.
	for _, p := range []struct{ server, client string }{{"192.0.0.8", "198.18.0.1"}, {"100::1", "100::2"}} {
		server := netip.MustParseAddr(p.server)
		if err := trySource(routes, returns, server, netip.MustParseAddr(p.client)); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", model.FamilyOf(server), err))
			continue
		}
		s.families = append(s.families, model.FamilyOf(server))
	}
	if len(s.families) == 0 {
		s.why = "a test connection with the source address of a client failed: " + errors.Join(problems...).Error()
		return s
	}
	s.returns = returns
	return s
}

func trySource(routes userspace.Routes, returns userspace.Returns, server, client netip.Addr) (err error) {
	if err := routes.Add(server); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, routes.Delete(server)) }()
	var led link.Server
	defer func() {
		if led.At.IsValid() {
			err = errors.Join(err, returns.Delete(led))
		}
	}()
	return relay.ProbeSource(server, client, func(at netip.AddrPort) error {
		led = link.Server{At: at, Protocol: unix.IPPROTO_TCP}
		return returns.Add(led)
	})
}
