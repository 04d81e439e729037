package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// Claims records which Service owns which FrontendKey when several claim it: the
// Service that has the address as its ClusterIP, else as its load balancer's address,
// else as an external IP (CVE-2020-8554). Of two claims of one kind the older Service
// owns the key, then the lower name. Its callers must pass Services as Admit returns
// them.
//
// Example: shop/web has the ClusterIP 10.96.0.10, and shop/copy requests it as external
// IP, both with port 80. In whatever order they come, Owns(10.96.0.10:80/TCP) is true
// for shop/web. Replace returns the other Services that must be decided again: shop/copy
// if shop/web is removed, because the key is then shop/copy's.
//
// An address has one owner of ranges for each protocol, even if two ranges are
// disjoint: a data plane can do the lookup by address and protocol alone, since the
// port of a packet does not show where its range begins.
type Claims struct {
	holder    map[model.FrontendKey]claim
	contested map[model.FrontendKey][]claim // all claimants, best first; only where there are several
}

// claim is one Service's claim of a key.
type claim struct {
	service model.ServiceKey
	created int64 // Unix seconds; 0 if unknown
	kind    model.FrontendKind
}

// NewClaims returns an empty table.
func NewClaims() *Claims {
	return &Claims{holder: map[model.FrontendKey]claim{}, contested: map[model.FrontendKey][]claim{}}
}

// Replace updates a Service from old to now (either may be nil) and returns the other
// Services whose owned keys changed by that.
func (c *Claims) Replace(old, now *model.Service) (affected []model.ServiceKey) {
	if sameClaims(old, now) {
		return nil
	}
	touch := func(k model.ServiceKey, self *model.Service) {
		if k != self.Key && !slices.Contains(affected, k) {
			affected = append(affected, k)
		}
	}
	eachKey(old, func(k model.FrontendKey, _ model.FrontendKind) {
		for _, s := range c.remove(claimed(k), old.Key) {
			touch(s, old)
		}
	})
	eachKey(now, func(k model.FrontendKey, kind model.FrontendKind) {
		for _, s := range c.add(claimed(k), claim{now.Key, now.Created, kind}) {
			touch(s, now)
		}
	})
	return affected
}

// Owns reports whether the Service holds key.
func (c *Claims) Owns(key model.FrontendKey, svc model.ServiceKey) bool {
	return c.holder[claimed(key)].service == svc
}

// Holder returns the Service that owns a key, and the others that claim it, best first.
func (c *Claims) Holder(key model.FrontendKey) (holder model.ServiceKey, losers []model.ServiceKey, held bool) {
	k := claimed(key)
	h, held := c.holder[k]
	for _, x := range c.contested[k] {
		if x.service != h.service {
			losers = append(losers, x.service)
		}
	}
	return h.service, losers, held
}

// claimed returns the contested key for a key that a Service claims.
func claimed(k model.FrontendKey) model.FrontendKey {
	if k.Range() {
		k.Port, k.LastPort = 0, 1
	}
	return k
}

// Lost returns one Problem for every key that svc claims and another Service holds.
func (c *Claims) Lost(svc *model.Service) (out []model.Problem) {
	if len(c.contested) == 0 || svc == nil {
		return nil
	}
	eachKey(svc, func(k model.FrontendKey, kind model.FrontendKind) {
		h := c.holder[claimed(k)]
		if h.service == svc.Key {
			return
		}
		what := k.String() + " is"
		if k.Range() {
			what = fmt.Sprintf("no port of %s is served for it: the only range of this address and protocol is", k)
		}
		out = append(out, model.Problem{Object: "Service " + svc.Key.String(), Field: field(kind),
			Reason: fmt.Sprintf("%s already taken by Service %s", what, h.service)})
	})
	return out
}

// field returns the field of the Service that has the address or port of a kind.
func field(kind model.FrontendKind) string {
	return map[model.FrontendKind]string{model.ClusterIP: "spec.clusterIPs", model.ExternalIP: "spec.externalIPs",
		model.LoadBalancer: "status.loadBalancer.ingress", model.NodePort: "spec.ports.nodePort"}[kind]
}

// add adds a claim. It returns the claimants if the owner of the key changes.
func (c *Claims) add(k model.FrontendKey, mine claim) (touched []model.ServiceKey) {
	cur, taken := c.holder[k]
	if !taken {
		c.holder[k] = mine
		return nil
	}
	if cur.service == mine.service { // named twice by one Service: eachKey returns the better kind first
		return nil
	}
	list := c.contested[k]
	if list == nil {
		list = []claim{cur}
	}
	list = append(list, mine)
	slices.SortFunc(list, func(a, b claim) int {
		if a.better(b) {
			return -1
		}
		return 1
	})
	c.contested[k] = list
	return c.hold(k, list)
}

// hold makes the first claimant the owner of a key. If the owner changes, it returns
// all claimants, because the others report who owns it.
func (c *Claims) hold(k model.FrontendKey, list []claim) (touched []model.ServiceKey) {
	before := c.holder[k].service
	c.holder[k] = list[0]
	if list[0].service == before {
		return nil
	}
	for _, x := range list {
		touched = append(touched, x.service)
	}
	return touched
}

// remove removes a Service's claim of a key. It returns the remaining claimants if the owner changes.
func (c *Claims) remove(k model.FrontendKey, svc model.ServiceKey) (touched []model.ServiceKey) {
	list := slices.DeleteFunc(c.contested[k], func(x claim) bool { return x.service == svc })
	if len(list) == 0 {
		delete(c.contested, k)
		if c.holder[k].service == svc {
			delete(c.holder, k)
		}
		return nil
	}
	if len(list) == 1 {
		delete(c.contested, k)
	} else {
		c.contested[k] = list
	}
	return c.hold(k, list)
}

// better reports whether a has precedence over b: by claimRank, then by age, then by name.
func (a claim) better(b claim) bool {
	if ra, rb := claimRank(a.kind), claimRank(b.kind); ra != rb {
		return ra < rb
	}
	if a.created != b.created {
		return a.created < b.created
	}
	return a.service.Compare(b.service) < 0
}

// claimRank orders kinds by the writer of the address: the API server's allocator, a
// controller, or any user who may write a Service.
func claimRank(kind model.FrontendKind) int {
	switch kind {
	case model.ClusterIP:
		return 0
	case model.LoadBalancer:
		return 1
	}
	return 2
}

// eachKey calls yield for every FrontendKey that a Service claims. A key that the Service has twice, for example as load
// balancer IP and as external IP, comes twice, with the better kind first.
func eachKey(svc *model.Service, yield func(model.FrontendKey, model.FrontendKind)) {
	if svc == nil || !svc.Proxied {
		return
	}
	ranges, _ := portRanges(svc)
	for i := range svc.Ports {
		p := &svc.Ports[i]
		each := func(kind model.FrontendKind, list []netip.Addr) {
			for _, a := range list {
				if fam := model.FamilyOf(a); servesFamily(svc, fam) {
					key := model.FrontendKey{Family: fam, Protocol: p.Protocol, Addr: a, Port: p.Port}
					yield(key, kind)
					if ranges == nil {
						continue
					}
					if r := ranges[i]; r.last != 0 {
						key.Port, key.LastPort = r.first, r.last
						yield(key, kind)
					}
				}
			}
		}
		each(model.ClusterIP, svc.ClusterIPs)
		each(model.LoadBalancer, svc.LoadBalancerIPs)
		each(model.ExternalIP, svc.ExternalIPs)
		if p.NodePort == 0 {
			continue
		}
		for _, fam := range [...]model.Family{model.IPv4, model.IPv6} {
			if servesFamily(svc, fam) {
				yield(model.FrontendKey{Family: fam, Protocol: p.Protocol, Port: p.NodePort}, model.NodePort)
			}
		}
	}
}

// sameClaims reports whether an update from one Service to the other changes no claim.
// Most updates are of this kind.
func sameClaims(a, b *model.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Created == b.Created && a.Proxied == b.Proxied && slices.Equal(a.ClusterIPs, b.ClusterIPs) &&
		slices.Equal(a.ExternalIPs, b.ExternalIPs) && slices.Equal(a.LoadBalancerIPs, b.LoadBalancerIPs) &&
		slices.Equal(a.Ports, b.Ports) && a.Extras.PortRange == b.Extras.PortRange
}

// LostKeys returns the keys that a Service claimed before and does not claim now.
func LostKeys(old, now *model.Service) (out []model.FrontendKey) {
	if old == nil || sameClaims(old, now) {
		return nil
	}
	keep := map[model.FrontendKey]struct{}{}
	eachKey(now, func(k model.FrontendKey, _ model.FrontendKind) { keep[k] = struct{}{} })
	eachKey(old, func(k model.FrontendKey, _ model.FrontendKind) {
		if _, ok := keep[k]; !ok {
			out = append(out, k)
		}
	})
	return out
}
