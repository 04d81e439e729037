package conntrack

import (
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// FuzzDecode feeds the decoder data that no kernel sends: it must neither panic nor loop, and a decoded flow can be printed,
// matched and encoded into a request.
func FuzzDecode(f *testing.F) {
	for i := range samples {
		e := encoder{}
		e.message(header{msgNew, 0, 1, samples[i].Family}, func() {
			e.tuple(ctaTupleOrig, samples[i].Protocol, samples[i].Orig, func() { e.be16(ctaTupleZone, 7) })
			e.tuple(ctaTupleReply, samples[i].Protocol, samples[i].Reply, nil)
			e.be32(ctaID, 9)
		})
		f.Add(e.b)
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		_ = netlink.Each(datagram, func(m netlink.Message) {
			m.Errno()
			x, ok := decodeFlow(m.Body)
			if !ok {
				return
			}
			_ = x.String()
			filter := Filter{Protocol: x.Protocol, OrigDst: x.Orig.Dst.Addr(), OrigPort: x.Orig.Dst.Port()}
			if !filter.Matches(&x) {
				t.Errorf("%s is not where it goes", &x)
			}
			e := encoder{}
			e.remove(&x, 0, 1)
		})
	})
}
