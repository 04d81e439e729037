package ipvs

import (
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// TestMoreMembersThanAnIpset: kube-proxy's sets end at 65 536 members, and its sync fails from there on (kubernetes#129389). The Driver's sets
// are in the real kernel here; IPVS is the fake, which is not part of the test.
func TestMoreMembersThanAnIpset(t *testing.T) {
	const services, ports = 35_000, 2
	ns := netnstest.Enter(t)
	k, err := nft.Open(nft.Config{NetNS: ns.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	v := ipvs.NewFake()
	start := func() *dataplanetest.Bed {
		bed := dataplanetest.NewBed(New(Params{NFT: k, IPVS: v, Addresses: v, Families: []model.Family{model.IPv4}}), dataplanetest.View())
		bed.Load(t)
		bed.Base()
		for i := range services {
			var both []model.Frontend
			for port := range ports {
				f := dataplanetest.ClusterIP(model.IPv4, i, 0)
				f.Key.Port += uint16(port)
				both = append(both, f)
			}
			bed.Want(dataplanetest.Service(i), both...)
		}
		return bed
	}
	start().Sync(t)
	members := 0
	err = k.Elements(t.Context(), tableRef(model.IPv4).Set("services"), func(*nft.Element) error { members++; return nil })
	if err != nil || members != services*ports {
		t.Errorf("the set of Services has %d members, %v; want %d", members, err, services*ports)
	}
	if left := start().Pending(); len(left) > 0 {
		t.Errorf("the next agent would write %d objects, as %v", len(left), left[0])
	}
}
