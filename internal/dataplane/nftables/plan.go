package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// plan is the order in which a batch is written: by family, then by kind.
type plan struct {
	order   []int32
	byKind  [2][kinds + 1]int32 // the index in order of the first op of a kind
	fresh   [2]bool             // the previous contents of the table are ignored: all ops are creations
	rebuild [2]bool             // fresh, and the table may exist
	removed [2]bool             // the table is deleted with all its contents
}

// famIndex returns the index of a family in bothFamilies.
func famIndex(f model.Family) int {
	if f == model.IPv6 {
		return 1
	}
	return 0
}

var bothFamilies = [2]model.Family{model.IPv4, model.IPv6}

// sort sorts ops into buckets of family and kind. Inside a bucket they keep their order.
func (p *plan) sort(b dataplane.Batch) {
	ops := b.Ops
	*p = plan{order: slices.Grow(p.order[:0], len(ops))[:len(ops)]}
	for _, f := range b.Rebuild {
		p.rebuild[famIndex(f)], p.fresh[famIndex(f)] = true, true
	}
	var count [2][kinds]int32
	for i := range ops {
		o := &ops[i]
		f := famIndex(o.Key.Family)
		count[f][o.Key.Kind]++
		if o.Key.Kind == dataplane.KindRoot {
			p.fresh[f], p.removed[f] = o.Want != "", o.Want == ""
		}
	}
	at := int32(0)
	for f := range count {
		for k := range count[f] {
			p.byKind[f][k] = at
			at += count[f][k]
		}
		p.byKind[f][kinds] = at
	}
	fill := p.byKind
	for i := range ops {
		slot := &fill[famIndex(ops[i].Key.Family)][ops[i].Key.Kind]
		p.order[*slot] = int32(i)
		*slot++
	}
	for f := range bothFamilies {
		p.byShard(f, ops)
	}
}

// concerns reports whether the batch changes a family.
func (p *plan) concerns(f int) bool { return p.rebuild[f] || p.byKind[f][0] < p.byKind[f][kinds] }

// byShard groups the ops on endpoints by shard, because consecutive elements of one set
// share a message.
func (p *plan) byShard(f int, ops []dataplane.Op) {
	list := p.of(f, kindEndpoints)
	if len(list) < 2 {
		return
	}
	var at [shards + 1]int
	for _, i := range list {
		at[shardOf(ops[i].Key.ID)+1]++
	}
	for n := range shards {
		at[n+1] += at[n]
	}
	out := make([]int32, len(list))
	for _, i := range list {
		n := shardOf(ops[i].Key.ID)
		out[at[n]] = i
		at[n]++
	}
	copy(list, out)
}

// of returns the indexes of the ops of a kind.
func (p *plan) of(f int, k dataplane.Kind) []int32 { return p.order[p.byKind[f][k]:p.byKind[f][k+1]] }
