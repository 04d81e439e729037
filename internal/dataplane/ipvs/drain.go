package ipvs

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
)

var _ dataplane.Drainer = (*Driver)(nil)

// Drained implements dataplane.Drainer. A real server without weight and without connections is drained, and so is a
// virtual server that has no other real servers. A connection that has ended counts for as long as IPVS remembers it, two minutes of TCP.
func (d *Driver) Drained(ctx context.Context, lingering []dataplane.Key) ([]dataplane.Key, error) {
	known := map[ipvs.VirtualKey]inUse{}
	var out []dataplane.Key
	for _, k := range lingering {
		of, at := server(k)
		used, read := known[of]
		if !read {
			reals, err := d.p.IPVS.Reals(ctx, of)
			if err != nil {
				return nil, fmt.Errorf("read connections: %w", err)
			}
			used = busy(reals)
			known[of] = used
		}
		if !used[at] {
			out = append(out, k)
		}
	}
	return out, nil
}

// inUse is the set of real servers of a virtual server that are in use. The zero AddrPort is in it if any of them is.
type inUse map[netip.AddrPort]bool

func busy(reals []ipvs.Real) inUse {
	used := inUse{}
	for _, r := range reals {
		if r.Weight > 0 || r.Active+r.Inactive > 0 {
			used[r.At], used[netip.AddrPort{}] = true, true
		}
	}
	return used
}

// server returns the virtual server of a lingering object, and its real server if the object belongs to one.
func server(k dataplane.Key) (of ipvs.VirtualKey, at netip.AddrPort) {
	switch k.Kind {
	case kindOwned:
		return ownedKey(k.ID, k.Family), at
	case kindReal:
		return parseReal(k.ID, k.Family)
	}
	of, _ = parseVirtual(k.ID, k.Family)
	return of, at
}
