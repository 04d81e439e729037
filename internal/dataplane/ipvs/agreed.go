package ipvs

import (
	"sync"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// agreed caches a sum of the elements of each set: the sum on which two readings agreed, updated by what the Driver has written since.
// The engine and Survey share it.
type agreed struct {
	mu   sync.Mutex
	sums map[nft.SetRef]standing
	room map[nft.SetRef]room // what the last readings needed, at any generation
}

// standing is the sum of a set as of a generation.
type standing struct {
	sum uint64
	at  nft.Generation
}

// room is the memory that the elements of a set take.
type room struct{ elements, bytes int }

// sum returns the sum of a set at a generation. It is known if every write since the cached generation is accounted for, up to the
// generation knows: either the Driver wrote it, and wrote has added it, or it does not concern these tables.
func (a *agreed) sum(at, knows nft.Generation, set nft.SetRef) (sum uint64, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, known := a.sums[set]
	return s.sum, known && (at == s.at || at.After(s.at) && !at.After(knows))
}

// upon stores the sum on which two readings agreed. at is 0 if the generation is not known, and then nothing is stored.
func (a *agreed) upon(at nft.Generation, set nft.SetRef, sum uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, known := a.sums[set]; at == 0 || known && s.at.After(at) {
		return
	}
	if a.sums == nil {
		a.sums = map[nft.SetRef]standing{}
	}
	a.sums[set] = standing{sum, at}
}

// wrote adds what a commit of the Driver wrote. The commit changed the generation from from, up to which all writes are accounted
// for, to to. Sums that other readers have stored since then include it already.
func (a *agreed) wrote(from, to nft.Generation, ops []dataplane.Op, written func(*dataplane.Op) bool) {
	sets := setsByKind()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sums == nil {
		a.sums = map[nft.SetRef]standing{}
	}
	for i := range ops {
		if op := &ops[i]; op.Key.Kind == kindSet && written(op) { // the set is created, empty, or deleted
			a.sums[tableRef(op.Key.Family).Set(op.Key.ID)] = standing{at: from}
		}
	}
	for i := range ops {
		op := &ops[i]
		if !isElement(op.Key.Kind) || !written(op) {
			continue
		}
		set := tableRef(op.Key.Family).Set(sets[op.Key.Kind])
		if s, known := a.sums[set]; known && !s.at.After(from) {
			a.sums[set] = standing{s.sum + summand(op.Key, op.Want) - summand(op.Key, op.Have), s.at}
		}
	}
	for set, s := range a.sums {
		if !s.at.After(from) {
			a.sums[set] = standing{s.sum, to}
		}
	}
}

func (a *agreed) roomFor(set nft.SetRef) room {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.room[set]
}

func (a *agreed) needed(set nft.SetRef, r room) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.room == nil {
		a.room = map[nft.SetRef]room{}
	}
	a.room[set] = r
}
