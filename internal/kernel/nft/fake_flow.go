package nft

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// fakeFlow is a flowtable. Rows are replaced, never modified, so that an undo restores the old one.
type fakeFlow struct {
	row  Flowtable
	refs int
}

// SetDevices sets which devices exist; before the first call a Fake accepts any. Like the kernel it removes deleted devices
// from the flowtables at once.
func (f *Fake) SetDevices(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.devices = map[string]bool{}
	for _, n := range names {
		f.devices[n] = true
	}
	for _, t := range f.tables {
		for _, flow := range t.flows {
			flow.row.Devices = slices.DeleteFunc(slices.Clone(flow.row.Devices), func(n string) bool { return !f.devices[n] })
		}
	}
}

// Flowtables is Conn.Flowtables.
func (f *Fake) Flowtables(ctx context.Context, t TableRef) ([]Flowtable, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Flowtable
	if table := f.tables[t]; table != nil {
		for _, flow := range table.flows {
			row := flow.row
			row.Use = uint32(flow.refs)
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b Flowtable) int { return int(a.Handle) - int(b.Handle) })
	return out, ctx.Err()
}

func (tx *fakeTx) newFlowtable(row Flowtable) unix.Errno {
	t := tx.tables[row.Ref.Table]
	if t == nil {
		return unix.ENOENT
	}
	for _, d := range row.Devices {
		if tx.devices != nil && !tx.devices[d] {
			return unix.ENOENT
		}
		for name, other := range t.flows {
			if name != row.Ref.Name && slices.Contains(other.row.Devices, d) {
				return unix.EEXIST
			}
		}
	}
	flow := t.flows[row.Ref.Name]
	if flow == nil {
		tx.handle++
		row.Handle = tx.handle
		t.flows[row.Ref.Name] = &fakeFlow{row: row}
		tx.done(func() { delete(t.flows, row.Ref.Name) })
		return 0
	}
	all := slices.Concat(flow.row.Devices, row.Devices)
	slices.Sort(all)
	tx.replaceDevices(flow, slices.Compact(all), row.Counter)
	return 0
}

func (tx *fakeTx) delFlowtable(row Flowtable) unix.Errno {
	t := tx.tables[row.Ref.Table]
	if t == nil || t.flows[row.Ref.Name] == nil {
		return unix.ENOENT
	}
	flow := t.flows[row.Ref.Name]
	if len(row.Devices) == 0 {
		if flow.refs > 0 {
			return unix.EBUSY
		}
		delete(t.flows, row.Ref.Name)
		tx.done(func() { t.flows[row.Ref.Name] = flow })
		return 0
	}
	left := slices.Clone(flow.row.Devices)
	for _, d := range row.Devices {
		i := slices.Index(left, d)
		if i < 0 {
			return unix.ENOENT
		}
		left = slices.Delete(left, i, i+1)
	}
	tx.replaceDevices(flow, left, flow.row.Counter)
	return 0
}

func (tx *fakeTx) replaceDevices(flow *fakeFlow, devices []string, counter bool) {
	old := flow.row
	flow.row.Devices, flow.row.Counter = devices, counter
	tx.done(func() { flow.row = old })
}

func (tx *fakeTx) resolveFlow(r *fakeRule, data []byte) unix.Errno {
	var flow *fakeFlow
	netlink.EachAttr(data, func(typ uint16, d []byte) {
		if t := tx.tables[r.row.Chain.Table]; typ == nftaFlowTable && t != nil {
			flow = t.flows[string(cstr(d))]
		}
	})
	if flow == nil {
		return unix.ENOENT
	}
	r.flows = append(r.flows, flow)
	return 0
}
