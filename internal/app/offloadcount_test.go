package app

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

// TestCountOffloaded: flows of both families and protocols count if a flowtable carries
// them, and a table that is dear to read is not read.
func TestCountOffloaded(t *testing.T) {
	table := &conntrack.Fake{}
	for i, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		address := []string{"10.0.0.1", "fd00::1"}[i]
		for _, protocol := range []uint8{6, 17} {
			for port, offloaded := range []bool{true, false, true} {
				at := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(1000+port))
				table.Add(conntrack.Flow{Family: family, Protocol: protocol, Offloaded: offloaded,
					Orig: conntrack.Tuple{Src: at, Dst: at}, Reply: conntrack.Tuple{Src: at, Dst: at}})
			}
		}
	}
	if n, err := countOffloaded(t.Context(), table, &inspect.Flows{Count: 12}); n != 8 || err != nil {
		t.Errorf("%d, %v, want 8", n, err)
	}
	for _, held := range []*inspect.Flows{nil, {Count: maxCounted + 1}} {
		if n, err := countOffloaded(t.Context(), table, held); err == nil {
			t.Errorf("%d are counted of %+v", n, held)
		}
	}
}
