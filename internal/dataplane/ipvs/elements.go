package ipvs

import (
	"context"
	"errors"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// A dump of a hash table that is growing, as after many insertions, may miss some elements and return others
// twice. So a set is read until two readings agree, or one has the sum that the set is known to have (agreed).

// readings is the maximum number of times that a set is read.
const readings = 8

// listing is one reading of a set.
type listing struct {
	dataplane.Total
	keep bool // keep the elements, not only their sum

	ids    []byte   // of all elements, or of the current one if keep is false
	ends   []int32  // where each ID ends
	values []string // if it is a map; elements of other sets have none
}

// elements reads a set until the listing is known to be complete.
func (r *reader) elements(ctx context.Context, f model.Family, def *setDef) (*listing, error) {
	set := tableRef(f).Set(def.name)
	want, known := r.d.agreed.sum(r.at, r.d.seen.Knows(), set)
	l := &listing{keep: r.emit != nil || def.kind == kindOwned}
	var last uint64
	readBefore := false
	for range readings {
		err := r.dump(ctx, f, def, l)
		if errors.Is(err, nft.ErrInterrupted) && ctx.Err() == nil {
			readBefore = false
			continue
		}
		if err != nil {
			return nil, err
		}
		if known && l.Sum == want || readBefore && l.Sum == last {
			r.d.agreed.upon(r.at, set, l.Sum)
			return l, nil
		}
		last, readBefore = l.Sum, true
	}
	return nil, nft.ErrInterrupted
}

// dump reads a set once.
func (r *reader) dump(ctx context.Context, f model.Family, def *setDef, l *listing) error {
	set := tableRef(f).Set(def.name)
	if l.Total = (dataplane.Total{}); l.keep {
		expected := r.d.agreed.roomFor(set)
		l.ids, l.ends = make([]byte, 0, expected.bytes), make([]int32, 0, expected.elements)
		if l.values = nil; def.verdicts {
			l.values = make([]string, 0, expected.elements)
		}
	}
	value := present
	hash := r.hash(def.kind, f, value)
	err := r.from.NFT.Elements(ctx, set, func(e *nft.Element) error {
		if def.verdicts {
			value = valueOf(e.Verdict)
			hash = r.hash(def.kind, f, value)
		}
		if !l.keep {
			l.ids = l.ids[:0]
		}
		begin := len(l.ids)
		l.ids = append(append(l.ids, e.Key...), e.KeyEnd...)
		l.Objects++
		l.Sum += hash.With(dataplane.HashName(l.ids[begin:]))
		if !l.keep {
			return nil
		}
		l.ends = append(l.ends, int32(len(l.ids)))
		if def.verdicts {
			l.values = append(l.values, value)
		}
		return nil
	})
	if l.keep {
		r.d.agreed.needed(set, room{len(l.ends), len(l.ids)})
	}
	return err
}

// report reports the elements of a set. All IDs are substrings of one string.
func (r *reader) report(f model.Family, def *setDef, l *listing) {
	r.add(def.kind, l.Objects, l.Sum)
	if def.kind == kindOwned {
		r.own(f, l)
	}
	if r.emit == nil {
		return
	}
	ids, begin := string(l.ids), int32(0)
	for i, end := range l.ends {
		value := present
		if def.verdicts {
			value = l.values[i]
		}
		r.emit(dataplane.Key{Kind: def.kind, Family: f, ID: ids[begin:end]}, value)
		begin = end
		r.pause(i)
	}
}
