package userspace

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/relay"
)

// The kinds, in the order in which Apply creates the objects.
const (
	kindWhere  dataplane.Kind = iota + 2 // the owners of addresses: relay.Whereabouts of one family
	kindRoute                            // ID: the address that the route makes local
	kindPort                             // ID: address, port and protocol that a routing rule delivers here
	kindReturn                           // ID: address, port and protocol of an endpoint whose replies to clients are routed here
	kindTarget                           // ID: model.FrontendKey; Value: the desired target, encoded
	kindSocket                           // ID: address, protocol, and the Frontend's ID
)

// Shared implements dataplane.Driver. It returns true for routes and rules for replies: Services can share addresses and endpoints.
func (d *Driver) Shared(k dataplane.Key) bool { return k.Kind == kindRoute || k.Kind == kindReturn }

// present is the value of objects that have no value of their own.
const present = "\x01"

// Base implements dataplane.Driver.
func (d *Driver) Base(view model.NodeView, emit func(dataplane.Object)) {
	for _, f := range []model.Family{model.IPv4, model.IPv6} {
		var w relay.Whereabouts
		for _, p := range view.Local.CIDRs {
			if view.Local.Mode == model.DetectCIDR && model.FamilyOf(p.Addr()) == f {
				w.Pods = append(w.Pods, p)
			}
		}
		for _, a := range view.NodeAddrs {
			if model.FamilyOf(a) == f {
				w.Node = append(w.Node, a)
			}
		}
		emit(dataplane.Object{Key: dataplane.Key{Kind: kindWhere, Family: f}, Value: encode(w)})
	}
}

// Render implements dataplane.Driver. A Frontend without endpoints has no socket: the
// kernel then rejects connections immediately.
func (d *Driver) Render(f *model.Frontend, view *model.NodeView, emit func(dataplane.Object)) {
	if Unsupported(f) != "" {
		return
	}
	fam, id := f.Key.Family, f.Key.String()
	if d.p.Plan.Own && f.Kind != model.NodePort && !slices.Contains(view.NodeAddrs, f.Key.Addr) {
		o := dataplane.Object{Key: dataplane.Key{Kind: kindRoute, Family: fam, ID: f.Key.Addr.String()}, Value: present}
		if f.Kind != model.ClusterIP {
			at := link.Server{At: netip.AddrPortFrom(f.Key.Addr, f.Key.Port), Protocol: uint8(f.Key.Protocol)}
			o = dataplane.Object{Key: portKey(at), Value: valueOfPort(f.Refuses() && fam == model.IPv4)}
		}
		emit(o)
	}
	if f.Refuses() {
		return
	}
	d.returns(f, emit)
	emit(dataplane.Object{Key: dataplane.Key{Kind: kindTarget, Family: fam, ID: id}, Value: encode(f)})
	for _, at := range d.p.Plan.Sockets(f, view) {
		emit(dataplane.Object{Key: dataplane.Key{Kind: kindSocket, Family: fam, ID: socketID(at, f.Key)}, Value: present})
	}
}

// ViewChanged implements dataplane.Driver.
func (d *Driver) ViewChanged(old, now *model.NodeView) bool {
	return d.p.Plan.Own && !(slices.Equal(old.NodePortAddrs, now.NodePortAddrs) && slices.Equal(old.NodeAddrs, now.NodeAddrs))
}

// Unsupported returns why this mode does not serve a Frontend; "" if it does.
func Unsupported(f *model.Frontend) string {
	switch {
	case f.Key.Protocol == model.SCTP:
		return "userspace mode does not support SCTP"
	case f.Key.Range():
		return "userspace mode does not support port ranges: each port would need a socket"
	}
	return ""
}

func encode(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values are of types of this module, and encoding them cannot fail
	}
	return string(out)
}

func socketID(at netip.AddrPort, k model.FrontendKey) string {
	return fmt.Sprintf("%s/%s %s", at, k.Protocol, k)
}
