package policy

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/fairlead/fairlead/internal/model"
)

// A hash table is filled as Maglev fills it (Eisenbud et al., NSDI 2016): each endpoint
// has its own order of preference for the places of the table, and the endpoints take
// free places in turn. The preference of an endpoint depends on its address and port
// alone, so every node makes the same table from the same endpoints, whatever its
// previous state.
//
// Two things differ. Maglev assigns all endpoints the same number of places, exactly,
// at a cost: when an endpoint is added, many places move between the others. Here an
// endpoint may take an eighth more than its share, or, where that is more, a bound that
// chance seldom exceeds: three times the square root of its share. So hardly more
// places move than the new endpoint takes (TestHashTableMovesLittle,
// TestHashTableGrows). And a table grows by doubling each place, which moves no
// endpoint by itself. But the preference of one endpoint is then coarser, and beyond
// some 250 endpoints the bound moves places between the others again: 1.8 times the
// ideal at 1 000. Only a table of 65 536 places for every Service, 6 MB in the kernel,
// would avoid this.

const (
	// hashGroups is the least size of a table: 2048 elements of about 100 bytes in
	// the kernel. With half of it 16 to 17 endpoints would move up to 1.25 times the
	// new one's share; twice as many would buy little.
	hashGroups = 2048
	// leastPlaces is how many an endpoint should have, so that an eighth of it is
	// some: from 65 endpoints on the table is larger.
	leastPlaces = 32
	maxTable    = MaxBackends
)

// hashTable returns the table for a list of endpoints; nil if the list is empty.
func hashTable(list []model.Backend) model.HashTable {
	if len(list) == 0 {
		return nil
	}
	f := filling{twins: 1}
	for hashGroups*f.twins < leastPlaces*len(list) && hashGroups*f.twins < maxTable {
		f.twins *= 2
	}
	f.table = make(model.HashTable, hashGroups*f.twins)
	bidders := f.bidders(list)
	due := dueTimes()
	for round := 0; f.filled < len(f.table); round++ {
		for i := range bidders {
			f.turn(&bidders[i], &due, round)
		}
	}
	return f.table
}

// filling is the state of a table while it is filled. Its places are in groups of
// twins, which have the same preference; in a table of the least size a group is one
// place.
type filling struct {
	table    model.HashTable
	twins    int
	taken    [hashGroups]int // of each group
	filled   int
	heaviest uint64
}

// bidder is an endpoint while the table is filled.
type bidder struct {
	place  uint16 // in the list
	order  uint64 // among the endpoints, and the seed of its preference
	weight uint64
	room   int // how many places it may still take
	next   int // how many groups it has tried
	likes  likes
}

// bidders returns the endpoints in an order that depends on the endpoints alone.
func (f *filling) bidders(list []model.Backend) []bidder {
	out := make([]bidder, len(list))
	total := 0
	for i := range list {
		w := max(int(list[i].Weight), 1)
		seed := identity(&list[i])
		out[i] = bidder{place: uint16(i), order: seed, weight: uint64(w), likes: likesOf(seed)}
		total += w
		f.heaviest = max(f.heaviest, uint64(w))
	}
	for i := range out {
		b := &out[i]
		// The bound, rounded up or down by chance (its own, the same on every node): as
		// endpoints come, the bounds fall one after the other.
		share := len(f.table) * int(b.weight)
		fair := share << 16 / total // in 65 536ths of a place
		bound := fair + max(fair/8, 3*root(fair<<16))
		b.room = max((bound+int(b.order&math.MaxUint16))>>16, (share+total-1)/total)
	}
	slices.SortFunc(out, func(a, b bidder) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.place, b.place))
	})
	return out
}

// root is the whole part of the square root, the same on every processor.
func root(x int) int {
	r := int(math.Sqrt(float64(x)))
	for r*r > x {
		r--
	}
	for (r+1)*(r+1) <= x {
		r++
	}
	return r
}

// turn handles the groups that are due for an endpoint in a round: one for the
// heaviest, fewer for the others.
func (f *filling) turn(b *bidder, due *[hashGroups]uint64, round int) {
	limit := uint64(math.MaxUint64)
	if round < hashGroups {
		limit = due[round] * b.weight
	}
	for b.room > 0 && b.next < hashGroups && due[b.next]*f.heaviest <= limit {
		group := b.likes.nth(b.next)
		b.next++
		for f.taken[group] < f.twins && b.room > 0 {
			f.table[group*f.twins+f.taken[group]] = b.place
			f.taken[group]++
			f.filled++
			b.room--
		}
	}
}

// dueTimes returns when an endpoint of weight 1 tries its first, second, ... group; one
// of weight w tries w times as early. Growing pauses make shares proportional to
// weights: they are the gaps between hashGroups random moments of equal chance.
func dueTimes() (due [hashGroups]uint64) {
	var now uint64
	for i := range due {
		now += 1 << 40 / uint64(hashGroups-i)
		due[i] = now
	}
	return due
}

// identity is a hash of an endpoint's address and port.
func identity(b *model.Backend) uint64 {
	a := b.Addr.As16()
	h := scramble(binary.BigEndian.Uint64(a[:8]) + 1)
	h = scramble(h ^ binary.BigEndian.Uint64(a[8:]))
	return scramble(h ^ uint64(b.Port))
}

// scramble is the finalizer of SplitMix64: each bit of x changes half of the result.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// likes is an order of preference of the groups: a pseudo-random permutation.
type likes [4]uint32

func likesOf(seed uint64) likes {
	a, b := scramble(seed), scramble(seed+1)
	return likes{uint32(a), uint32(a >> 32), uint32(b), uint32(b >> 32)}
}

// nth returns the group in the nth place. Each step can be undone, so that no group
// comes twice.
func (l *likes) nth(n int) int {
	const mask, half = hashGroups - 1, 5 // of 11 bits
	x := uint32(n)
	for _, k := range l {
		x = (x*(k|1) + k>>7) & mask
		x ^= x >> half
	}
	return int(x)
}
