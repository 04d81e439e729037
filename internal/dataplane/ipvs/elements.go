package ipvs

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// A dump of a hash table that grows just now, as one does after many insertions, may miss some elements and give others
// twice. So a set is read until two readings agree. What they agreed upon is remembered for as long as nothing is written
// to nf_tables: then the next reading need only agree with that.

// readings bounds how often a set is read.
const readings = 8

// element is one of a set.
type element struct{ id, value string }

// agreed remembers the sums of what two readings of a set agreed upon. Engine and Survey share it.
type agreed struct {
	mu   sync.Mutex
	at   nft.Generation
	sums map[nft.SetRef]uint64
	room map[nft.SetRef]room // what the last readings needed, at whatever generation
}

// room is what the elements of a set take.
type room struct{ elements, bytes int }

func (a *agreed) sum(at nft.Generation, set nft.SetRef) (sum uint64, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at == 0 || at != a.at {
		return 0, false
	}
	sum, known = a.sums[set]
	return sum, known
}

func (a *agreed) upon(at nft.Generation, set nft.SetRef, sum uint64) {
	if at == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if at != a.at || a.sums == nil {
		a.at, a.sums = at, map[nft.SetRef]uint64{}
	}
	a.sums[set] = sum
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

// elements reads a set until two readings agree.
func (r *reader) elements(ctx context.Context, f model.Family, def *setDef) ([]element, error) {
	set := tableRef(f).Set(def.name)
	last, known := r.d.agreed.sum(r.at, set)
	for range readings {
		list, err := r.dump(ctx, set, def.verdicts)
		if errors.Is(err, nft.ErrInterrupted) && ctx.Err() == nil {
			known = false
			continue
		}
		if err != nil {
			return nil, err
		}
		sum := sumOf(dataplane.Key{Kind: def.kind, Family: f}, list)
		if known && sum == last {
			r.d.agreed.upon(r.at, set, sum)
			return list, nil
		}
		last, known = sum, true
	}
	return nil, nft.ErrInterrupted
}

func sumOf(k dataplane.Key, list []element) (sum uint64) {
	for _, e := range list {
		k.ID = e.id
		sum += dataplane.ObjectSum(k, e.value)
	}
	return sum
}

// dump reads a set once. All IDs lie in one string.
func (r *reader) dump(ctx context.Context, set nft.SetRef, verdicts bool) (list []element, err error) {
	expected := r.d.agreed.roomFor(set)
	ids, ends := make([]byte, 0, expected.bytes), make([]int32, 0, expected.elements)
	list = make([]element, 0, expected.elements)
	err = r.from.NFT.Elements(ctx, set, func(e *nft.Element) error {
		value := present
		if verdicts {
			value = valueOf(e.Verdict)
		}
		ids = append(append(ids, e.Key...), e.KeyEnd...)
		ends, list = append(ends, int32(len(ids))), append(list, element{value: value})
		return ctx.Err()
	})
	r.d.agreed.needed(set, room{len(list), len(ids)})
	all, begin := string(ids), int32(0)
	for i, end := range ends {
		list[i].id, begin = all[begin:end], end
	}
	return list, err
}
