package app

import (
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/metrics"
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
				table.Add(conntrack.Flow{Family: family, Protocol: protocol, Offloaded: offloaded, Packets: 3, Bytes: 200,
					Orig: conntrack.Tuple{Src: at, Dst: at}, Reply: conntrack.Tuple{Src: at, Dst: at}})
			}
		}
	}
	var got metrics.Offload
	if err := countOffloaded(t.Context(), table, &inspect.Flows{Count: 12}, &got); got.Now != 8 || got.Packets != 24 || got.Bytes != 1600 || err != nil {
		t.Errorf("%+v, %v, want 8 connections of 24 packets and 1600 bytes", got, err)
	}
	for _, held := range []*inspect.Flows{nil, {Count: maxCounted + 1}} {
		got = metrics.Offload{}
		if err := countOffloaded(t.Context(), table, held, &got); err == nil || got.Now != 0 {
			t.Errorf("%+v are counted of %+v", got, held)
		}
	}
}
