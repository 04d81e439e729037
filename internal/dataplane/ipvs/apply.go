package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Apply implements dataplane.Driver. A batch to IPVS is not one transaction, so the order keeps every intermediate state correct: first
// the new and changed rules, then virtual and real servers, then addresses, which publish; deletions go in the reverse
// order. Each step can be repeated.
func (d *Driver) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if len(b.Ops)+len(b.Rebuild) == 0 {
		return dataplane.Applied{}, nil
	}
	if err := d.unmoved(ctx); err != nil {
		return dataplane.Applied{}, err
	}
	for _, f := range b.Rebuild {
		unwanted, err := d.leftBehind(ctx, f, b.Ops)
		if err != nil {
			return dataplane.Applied{}, fmt.Errorf("read the objects to rebuild: %w", err)
		}
		b.Ops = slices.Concat(b.Ops, unwanted)
	}
	orphans, err := d.orphans(ctx, b.Ops)
	if err != nil {
		return dataplane.Applied{}, fmt.Errorf("read virtual servers of an earlier run: %w", err)
	}
	b.Ops = slices.Concat(b.Ops, orphans)
	d.writes.Add(1)
	defer d.writes.Add(1)
	w := writer{d: d, ops: b.Ops, rebuild: b.Rebuild}
	if err := w.run(ctx); err != nil {
		return dataplane.Applied{}, err
	}
	for _, op := range b.Ops {
		if inIPVS(op.Key.Kind) {
			d.sum.Add(summand(op.Key, op.Want) - summand(op.Key, op.Have))
		}
	}
	d.unsure = false
	return dataplane.Applied{Operations: len(b.Ops)}, nil
}

// unmoved returns ErrConflict if another program has written something that the ledger does not account for.
func (d *Driver) unmoved(ctx context.Context) error {
	g, err := d.p.NFT.Generation(ctx)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if d.seen.Knows() == 0 {
		d.seen.Compared(g)
	}
	if !d.seen.Settled(ctx, g) {
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	}
	return nil
}

// leftBehind returns the deletions of what is in IPVS and not among a rebuild's ops.
func (d *Driver) leftBehind(ctx context.Context, f model.Family, ops []dataplane.Op) ([]dataplane.Op, error) {
	wanted := map[dataplane.Key]bool{}
	for i := range ops {
		wanted[ops[i].Key] = true
	}
	var out []dataplane.Op
	r := d.reader(func(k dataplane.Key, value string) {
		if inIPVS(k.Kind) && k.Family == f && !wanted[k] {
			out = append(out, dataplane.Op{Key: k, Have: value})
		}
	})
	if err := r.owned(ctx); err != nil {
		return nil, err
	}
	return out, r.all(ctx)
}

// writer writes one batch.
type writer struct {
	d       *Driver
	ops     []dataplane.Op
	rebuild []model.Family
	done    bool // something has been written
}

func (w *writer) run(ctx context.Context) error {
	if err := w.commit(ctx, func(op *dataplane.Op) bool { return op.Want != "" }, true); err != nil {
		return err
	}
	steps := []struct {
		kind  dataplane.Kind
		comes bool
	}{{kindWeight, false}, {kindDevice, true}, {kindRule, true}, {kindVirtual, true}, {kindReal, true}, {kindWeight, true},
		{kindAddress, true}, {kindRoute, true}, {kindAddress, false}, {kindRoute, false}, {kindReal, false}, {kindVirtual, false},
		{kindRule, false}, {kindDevice, false}}
	for _, s := range steps {
		for i := range w.ops {
			op := &w.ops[i]
			if op.Key.Kind != s.kind || (op.Want != "") != s.comes {
				continue
			}
			if err := w.do(ctx, op); err != nil {
				return w.failed(err, op)
			}
			w.done = true
		}
	}
	return w.commit(ctx, func(op *dataplane.Op) bool { return op.Want == "" }, false)
}

// failed maps the error of one operation of IPVS to the error classes of the contract.
func (w *writer) failed(err error, op *dataplane.Op) error {
	w.d.unsure = true
	for _, e := range [...]unix.Errno{unix.ENOENT, unix.EINVAL, unix.EAFNOSUPPORT} { // the object is invalid
		if op.Want != "" && errors.Is(err, e) {
			return errors.Join(&dataplane.InvalidError{Keys: []dataplane.Key{op.Key}, Err: err}, dataplane.ErrInPart)
		}
	}
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("apply: %w: %w", dataplane.ErrConflict, err) // the object that it belongs to is missing
	}
	return fmt.Errorf("apply %d differences: %w", len(w.ops), err)
}

// do executes one operation of IPVS or on the device.
func (w *writer) do(ctx context.Context, op *dataplane.Op) error {
	k, at, id, f := w.d.p.IPVS, w.d.p.Addresses, op.Key.ID, op.Key.Family
	switch op.Key.Kind {
	case kindDevice:
		if op.Want == "" {
			return at.RemoveDevice(ctx)
		}
		return at.MakeDevice(ctx)
	case kindAddress:
		a, _ := netip.AddrFromSlice([]byte(id)) // Render made the ID from an address
		if op.Want == "" {
			return at.Remove(ctx, a)
		}
		return at.Add(ctx, a)
	case kindRule:
		mark, err := strconv.ParseUint(cmp.Or(op.Want, "0"), 16, 32)
		if err != nil {
			return err
		}
		return at.SetRule(ctx, f == model.IPv6, uint32(mark))
	case kindRoute:
		a, _ := netip.AddrFromSlice([]byte(id)) // as above
		if op.Want == "" {
			return at.RemoveRoute(ctx, a)
		}
		return at.AddRoute(ctx, a)
	case kindVirtual:
		key, _ := parseVirtual(id, f)
		if op.Want == "" {
			return k.DelVirtual(ctx, key)
		}
		v, err := parseService(key, op.Want)
		if err != nil {
			return err
		}
		return k.PutVirtual(ctx, v)
	}
	return w.real(ctx, op)
}

// real executes one operation of a real server. A new one has no weight, because the weight is a separate object.
func (w *writer) real(ctx context.Context, op *dataplane.Op) error {
	of, to := parseReal(op.Key.ID, op.Key.Family)
	switch {
	case op.Key.Kind == kindReal && op.Want == "":
		return w.d.p.IPVS.DelReal(ctx, of, to)
	case op.Key.Kind == kindReal:
		if op.Have != "" { // the forwarding method cannot be changed
			if err := w.d.p.IPVS.DelReal(ctx, of, to); err != nil {
				return err
			}
		}
		return w.d.p.IPVS.PutReal(ctx, of, ipvs.Real{At: to})
	case op.Want == "":
		return w.d.withhold(ctx, of, to)
	}
	n, err := strconv.ParseUint(op.Want, 10, 16)
	if err != nil {
		return err
	}
	return w.d.p.IPVS.PutReal(ctx, of, ipvs.Real{At: to, Weight: uint32(n)})
}

// withhold sets the weight of a real server to zero, so that it gets no new connections. A tunnel to the other family, which only another
// program makes, is deleted: the kernel refuses to change it into a translated one, and one refusal would block all other operations.
func (d *Driver) withhold(ctx context.Context, of ipvs.VirtualKey, at netip.AddrPort) error {
	if at.Addr().Is4() != of.Addr.Is4() {
		return d.p.IPVS.DelReal(ctx, of, at)
	}
	return d.p.IPVS.PutReal(ctx, of, ipvs.Real{At: at})
}

// commit writes one nftables transaction of the chosen ops.
func (w *writer) commit(ctx context.Context, chosen func(*dataplane.Op) bool, comes bool) error {
	var b nft.Batch
	if comes {
		for _, f := range w.rebuild {
			b.NewTable(tableRef(f), nil) // so that it is no error if the table does not exist
			b.DelTable(tableRef(f))
		}
	}
	for i := range w.ops {
		if op := &w.ops[i]; comes && op.Have == "" && op.Want != "" {
			b.Tag(i)
			w.declare(&b, op) // everything to which rules may refer
		}
	}
	for i := range w.ops {
		if op := &w.ops[i]; !inIPVS(op.Key.Kind) && chosen(op) {
			b.Tag(i)
			w.encode(&b, op)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	made, err := w.d.seen.Commit(ctx, w.d.p.NFT, &b)
	if err != nil {
		w.d.unsure = w.d.unsure || w.done
		return w.refused(err)
	}
	w.d.agreed.wrote(b.Expect, made, w.ops, chosen)
	w.done = true
	return nil
}

// refused maps an error of nftables to the error classes of the contract.
func (w *writer) refused(err error) error {
	var refused *nft.BatchError
	if errors.Is(err, nft.ErrGeneration) {
		return fmt.Errorf("apply: %w", dataplane.ErrConflict)
	}
	if !errors.As(err, &refused) || !slices.Contains([]unix.Errno{unix.EEXIST, unix.EINVAL, unix.ENOENT}, refused.Errno) {
		w.d.unsure = true
		return fmt.Errorf("apply %d differences: %w", len(w.ops), err)
	}
	if refused.Errno == unix.ENOENT || w.done {
		return fmt.Errorf("apply: %w: %w", dataplane.ErrConflict, refused)
	}
	invalid := dataplane.InvalidError{Err: refused}
	for _, e := range refused.Errors {
		for _, t := range e.Tags {
			if t >= 0 && t < len(w.ops) && !slices.Contains(invalid.Keys, w.ops[t].Key) {
				invalid.Keys = append(invalid.Keys, w.ops[t].Key)
			}
		}
	}
	if len(invalid.Keys) == 0 {
		return fmt.Errorf("apply %d differences: %w", len(w.ops), refused)
	}
	if refused.Errno == unix.EEXIST { // an object that is not in the synced state may be in the way
		return errors.Join(&invalid, dataplane.ErrConflict)
	}
	return &invalid
}

// declare creates a table, a set, or a chain without its rules.
func (w *writer) declare(b *nft.Batch, op *dataplane.Op) {
	table := tableRef(op.Key.Family)
	switch op.Key.Kind {
	case dataplane.KindRoot:
		b.NewTable(table, nft.Comment(op.Want))
	case kindSet:
		i := slices.IndexFunc(setDefs(), func(d setDef) bool { return d.name == op.Key.ID })
		b.NewSet(setDefs()[i].spec(op.Key.Family))
	case kindChain:
		i := slices.IndexFunc(chainDefs(), func(c chainDef) bool { return c.name == op.Key.ID })
		b.NewChain(nft.ChainSpec{Ref: table.Chain(op.Key.ID), Hook: chainDefs()[i].hook})
	}
}

// encode writes the ops that declare does not handle.
func (w *writer) encode(b *nft.Batch, op *dataplane.Op) {
	table := tableRef(op.Key.Family)
	switch k := op.Key.Kind; {
	case isElement(k):
		w.element(b, op)
	case k == kindChain && op.Want != "":
		ref := table.Chain(op.Key.ID)
		if op.Have != "" {
			b.FlushChain(ref)
		}
		for _, r := range w.d.rules[op.Want]() {
			b.NewRule(nft.RuleSpec{Chain: ref, Exprs: r, UserData: tag(r)})
		}
	case op.Want != "": // declare has handled it
	case k == dataplane.KindRoot:
		b.DelTable(table)
	case k == kindSet:
		b.DelSet(table.Set(op.Key.ID))
	case k == kindChain:
		b.DelChain(table.Chain(op.Key.ID))
	}
}

func (w *writer) element(b *nft.Batch, op *dataplane.Op) {
	i := slices.IndexFunc(setDefs(), func(d setDef) bool { return d.kind == op.Key.Kind })
	def := &setDefs()[i]
	e := nft.Element{Key: []byte(op.Key.ID)}
	if def.ranges {
		n := len(e.Key) / 2
		e.Key, e.KeyEnd = e.Key[:n], e.Key[n:]
		b.EndList() // so that the kernel names a range that overlaps another
	}
	set := tableRef(op.Key.Family).Set(def.name)
	if op.Have != "" {
		b.DelElement(set, &e)
	}
	if op.Want != "" {
		if def.verdicts {
			e.Verdict = verdictOf(op.Want)
		}
		b.AddElement(set, &e)
	}
}
