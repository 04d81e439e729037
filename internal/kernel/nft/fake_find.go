package nft

import (
	"bytes"
	"context"
)

// Element implements Finder.
func (f *Fake) Element(ctx context.Context, s SetRef, want *Element) (Element, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if set := f.set(s); set != nil {
		for _, e := range set.elems {
			if bytes.Equal(e.Key, want.Key) && e.Flags&ElementIntervalEnd == want.Flags&ElementIntervalEnd {
				return e.clone(), true, ctx.Err()
			}
		}
	}
	return Element{}, false, ctx.Err()
}

// Table implements Finder.
func (f *Fake) Table(ctx context.Context, t TableRef) (Table, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if table := f.tables[t]; table != nil {
		return table.row, true, ctx.Err()
	}
	return Table{}, false, ctx.Err()
}

// Set implements Finder.
func (f *Fake) Set(ctx context.Context, s SetRef) (Set, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if set := f.set(s); set != nil {
		return set.row, true, ctx.Err()
	}
	return Set{}, false, ctx.Err()
}

// Chain implements Finder.
func (f *Fake) Chain(ctx context.Context, c ChainRef) (Chain, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if table := f.tables[c.Table]; table != nil && table.chains[c.Name] != nil {
		return table.chains[c.Name].row, true, ctx.Err()
	}
	return Chain{}, false, ctx.Err()
}

// ChainRules implements Finder.
func (f *Fake) ChainRules(ctx context.Context, c ChainRef) ([]Rule, error) {
	all, err := f.Rules(ctx, c.Table)
	var out []Rule
	for i := range all {
		if all[i].Chain == c {
			out = append(out, all[i])
		}
	}
	return out, err
}
