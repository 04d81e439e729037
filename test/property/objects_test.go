package property

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
)

// TestOneObjectHasOneValue checks that Frontends of one Service agree on the kernel
// objects that they share, because the last one rendered overwrites the others.
func TestOneObjectHasOneValue(t *testing.T) {
	view := policy.View(policy.ViewInputs{MasqueradeBit: 14, Host: model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.MustParsePrefix("192.168.0.1/24"), Link: "eth0"}}},
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::1000/116")}})
	self := policy.Self{Name: "n", Addrs: view.NodeAddrs}
	for _, d := range []dataplane.Driver{nftables.New(nftables.Params{}), iptables.New(iptables.Params{}), ipvs.New(ipvs.Params{})} {
		t.Run(d.Name(), func(t *testing.T) {
			w := newWorld(rand.New(rand.NewPCG(1, 2)))
			for i := range 300 {
				s := w.randomService(i % keys)
				sl := w.randomSlice(i % keys)
				res := policy.Frontends(policy.Inputs{Service: s, Slices: []*model.Slice{sl}, Node: self})
				values := map[dataplane.Key]string{}
				for j := range res.Frontends {
					d.Render(&res.Frontends[j], &view, func(o dataplane.Object) {
						if was, twice := values[o.Key]; twice && was != o.Value {
							t.Fatalf("%+v\nhas two values for %s:\n%s\nand\n%s", *s, d.KeyString(o.Key), was, o.Value)
						}
						values[o.Key] = o.Value
					})
				}
			}
		})
	}
}
