package ipvs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernelProperty: after any sequence of creations, updates and deletions, every way to read returns the actual state.
func TestKernelProperty(t *testing.T) {
	const rounds, steps = 15, 40
	seed := uint64(time.Now().UnixNano())
	g := &happenings{r: newRoom(t), t: t, chance: rand.New(rand.NewPCG(seed, 0)), now: pools{}}
	for round := range rounds {
		for range steps {
			g.next()
		}
		g.r.alike(t, fmt.Sprintf("seed %d, round %d", seed, round), g.now)
		if t.Failed() {
			return
		}
	}
}

// happenings does something to IPVS, and keeps account of what is there.
type happenings struct {
	r      *room
	t      *testing.T
	chance *rand.Rand
	now    pools
}

func (g *happenings) address(six bool, subnet byte) netip.Addr {
	n := byte(1 + g.chance.IntN(6))
	if six {
		return netip.AddrFrom16([16]byte{0xfd, subnet, 15: n})
	}
	return netip.AddrFrom4([4]byte{10, subnet, 0, n})
}

func (g *happenings) key() VirtualKey {
	protocols := []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}
	return VirtualKey{g.address(g.chance.IntN(2) == 0, 96), protocols[g.chance.IntN(3)], uint16(80 + g.chance.IntN(2))}
}

// any is a virtual server that there is.
func (g *happenings) any() (VirtualKey, bool) {
	keys := slices.SortedFunc(maps.Keys(g.now), compareKeys)
	if len(keys) == 0 {
		return VirtualKey{}, false
	}
	return keys[g.chance.IntN(len(keys))], true
}

func (g *happenings) next() {
	key, there := g.any()
	switch g.chance.IntN(12) {
	case 0, 1, 2:
		g.virtual()
	case 3:
		if there {
			delete(g.now, key)
			g.must(g.r.c.DelVirtual(g.t.Context(), key))
		}
	case 4:
		to := netip.AddrPortFrom(g.address(key.Addr.Is6(), 244), 8080)
		g.r.mark(g.t, family(to.Addr()), to)
	case 5, 6:
		if there && len(g.now[key].reals) > 0 {
			list := slices.SortedFunc(maps.Keys(g.now[key].reals), netip.AddrPort.Compare)
			at := list[g.chance.IntN(len(list))]
			delete(g.now[key].reals, at)
			g.must(g.r.c.DelReal(g.t.Context(), key, at))
		}
	default:
		for n := g.chance.IntN(30); there && n > 0; n-- {
			g.real(key)
		}
	}
}

func (g *happenings) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *happenings) virtual() {
	v := Virtual{VirtualKey: g.key(), Scheduler: []string{"rr", "wrr", "lc", "sh", "mh"}[g.chance.IntN(5)]}
	v.Flags = Flags(g.chance.Uint32()) & settable
	if v.Flags&Persistent != 0 {
		v.Timeout = time.Duration(1+g.chance.IntN(100_000)) * time.Second
	}
	g.must(g.r.c.PutVirtual(g.t.Context(), v))
	reals := g.now[v.VirtualKey].reals
	if reals == nil {
		reals = map[netip.AddrPort]Real{}
	}
	g.now[v.VirtualKey] = pool{v, reals}
}

// real creates or updates one, in most cases as the agent does.
func (g *happenings) real(of VirtualKey) {
	to := Real{At: netip.AddrPortFrom(g.address(of.Addr.Is6(), byte(244+g.chance.IntN(4))), uint16(8080+g.chance.IntN(2))), Weight: uint32(g.chance.IntN(4))}
	switch g.chance.IntN(40) {
	case 0:
		to.Method = 3 // direct routing
	case 1:
		to.Method = 2 // tunnel
	case 2: // a tunnel to the other family
		to.Method, to.At = 2, netip.AddrPortFrom(g.address(of.Addr.Is4(), 200), 8080)
	}
	g.r.put(g.t, of, to)
	g.now[of].reals[to.At] = to
}
