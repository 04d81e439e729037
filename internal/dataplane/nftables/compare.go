package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// maxCompared bounds how many slots of one pool Compare reads.
const maxCompared = 1024

// Compare implements dataplane.Driver. It looks up each element, set and chain by name.
// Of a pool it also reads the slots after the last desired one that a packet may draw:
// an endpoint that another program wrote there would receive connections.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	if d.find == nil {
		return fmt.Errorf("compare: %w: no netlink socket", dataplane.ErrUnsupported)
	}
	d.looking.Lock()
	defer d.looking.Unlock()
	l := look{ctx: ctx, find: d.find}
	for i := range want {
		o := &want[i]
		found := l.at(o)
		if l.err != nil {
			return fmt.Errorf("compare %s: %w", d.KeyString(o.Key), l.err)
		}
		if found != o.Value {
			differs(o.Key, found)
		}
	}
	return nil
}

// look is one run of Compare. It reads objects until the first error.
type look struct {
	ctx  context.Context
	find nft.Finder
	err  error
}

// at returns the actual value of an object, "" if the kernel does not have it.
func (l *look) at(o *dataplane.Object) string {
	table := tableRef(o.Key.Family)
	switch o.Key.Kind {
	case dataplane.KindRoot:
		return l.table(table)
	case kindSet, kindClients:
		return l.set(o.Key)
	case kindLeafChain, kindOuterChain, kindBaseChain:
		return l.chain(o.Key)
	case kindStickyRules:
		return l.rules(table.Chain(o.Key.ID), true)
	}
	if def := defOf(o.Key.Kind); def != nil {
		return l.elements(def, o)
	}
	return ""
}

func (l *look) table(ref nft.TableRef) string {
	row, found, err := l.find.Table(l.ctx, ref)
	if l.err = err; err != nil || !found {
		return ""
	}
	value, err := layoutOf(&row)
	if err != nil || row.Flags&nft.TableDormant != 0 {
		return "owned by another program, or dormant"
	}
	return value
}

func (l *look) set(k dataplane.Key) string {
	row, found, err := l.find.Set(l.ctx, tableRef(k.Family).Set(k.ID))
	if l.err = err; err != nil || !found {
		return ""
	}
	if k.Kind == kindClients {
		if sameClients(k.Family, row) {
			return clientsDigest(k.Family)
		}
		return "another declaration"
	}
	if isCounted(k.ID) && sameCounted(k.Family, row) {
		return countedDigest(k.Family)
	}
	def := defNamed(k.ID)
	if def == nil {
		return "foreign"
	}
	spec := def.spec(k.Family, k.ID, 0)
	spec.Size = row.Size // the size may have grown
	if !spec.Matches(row) {
		return "another declaration"
	}
	return def.digest(k.Family)
}

// chain returns the digest of a chain's actual rules, or another value if its hook is
// not the desired one. The chain of one Service port is two objects (frontend.sticky).
func (l *look) chain(k dataplane.Key) string {
	ref := tableRef(k.Family).Chain(k.ID)
	row, found, err := l.find.Chain(l.ctx, ref)
	if l.err = err; err != nil || !found {
		return ""
	}
	want, fixed := fixedHooks()[k.ID]
	if (fixed || k.Kind == kindBaseChain) && !sameHook(want, row.Hook) {
		return "another hook"
	}
	if k.Kind != kindBaseChain && isSticky(k.ID) {
		return noRules
	}
	if sum := l.rules(ref, false); sum != "" {
		return sum
	}
	return noRules
}

// rules returns the digest of a chain's actual rules, "" if it has none.
func (l *look) rules(ref nft.ChainRef, sticky bool) string {
	list, err := l.find.ChainRules(l.ctx, ref)
	if l.err = err; len(list) == 0 || err != nil {
		return ""
	}
	sum := digestFor(ref.Name, sticky)
	for i := range list {
		sum.add(list[i].UserData)
	}
	return sum.String()
}

// elements returns the actual value of an object that consists of elements of a set.
func (l *look) elements(def *setDef, o *dataplane.Object) string {
	e := reading{look: l, def: def, key: o.Key, set: tableRef(o.Key.Family).Set(def.part(o.Key.ID))}
	switch def.shape {
	case shapePool:
		return e.pool(o.Value)
	case shapeRanges:
		return e.ranges()
	case shapeAllowed:
		return e.allowed(o.Value)
	case shapeLive:
		return e.live(o.Value)
	}
	want := nft.Element{Key: appendKey(nil, def.ident, o.Key.ID)}
	if def.ident == identRange {
		want.KeyEnd = appendKeyEnd(nil, def.ident, o.Key.ID)
	}
	got, found := e.has(&want)
	switch {
	case !found:
		return ""
	case def.shape == shapeVerdict:
		return valueOf(got.Verdict)
	}
	return present
}

// reading reads one object in a set.
type reading struct {
	*look
	def *setDef
	key dataplane.Key
	set nft.SetRef
}

// has returns the actual element that has the key of want, and reports whether it exists.
func (r *reading) has(want *nft.Element) (nft.Element, bool) {
	if r.err != nil {
		return nft.Element{}, false
	}
	got, found, err := r.find.Element(r.ctx, r.set, want)
	if errors.Is(err, unix.EINVAL) { // a set of that name has another key type: the desired element is not in it
		return nft.Element{}, false
	}
	r.err = err
	return got, found
}

// pool reads the desired slots and all others that a packet may draw, at most maxCompared.
func (r *reading) pool(want string) string {
	w, from := r.def.slotWidth(r.key.Family), uint32(0)
	n := len(want) / w
	drawn := int(classOf(n))
	if r.def.hashed {
		from, drawn = hashBase, n
	}
	key := appendKey(nil, r.def.ident, r.key.ID)
	out := make([]byte, 0, len(want))
	for i := range min(drawn, maxCompared) {
		got, found := r.has(&nft.Element{Key: nft.AppendSlot(key[:len(key):len(key)], from+uint32(i))})
		switch {
		case found && len(got.Data) >= w:
			out = append(out, make([]byte, i*w-len(out))...)
			out = append(out, got.Data[:w]...)
		case found:
			return "a slot of another size"
		}
	}
	if n > maxCompared && string(out) == want[:maxCompared*w] {
		return want
	}
	return string(out)
}

// ranges reads the whole set, because the set is one object.
func (r *reading) ranges() string {
	var list []bound
	err := r.find.Elements(r.ctx, r.set, func(e *nft.Element) error {
		list = append(list, bound{string(e.Key), e.Flags&nft.ElementIntervalEnd != 0})
		return nil
	})
	if r.err = missing(err); r.err != nil {
		return ""
	}
	return joinBounds(list, addrLen(r.key.Family))
}

// allowed returns the desired ranges that the kernel has.
func (r *reading) allowed(want string) string {
	out := ""
	h := half{def: r.def, key: r.key, mine: want}
	h.eachRange(func(first, last string) {
		e := nft.Element{
			Key:    append(appendKey(nil, r.def.ident, r.key.ID), first...),
			KeyEnd: append(appendKeyEnd(nil, r.def.ident, r.key.ID), last...),
		}
		if _, found := r.has(&e); found {
			out += first + last
		}
	})
	return out
}

// live returns the desired endpoints that the kernel has.
func (r *reading) live(want string) string {
	w, out := r.def.slotWidth(r.key.Family), ""
	for i := 0; i+w <= len(want); i += w {
		el := want[i : i+w]
		key := append([]byte(el), 0, 0)
		if _, found := r.has(&nft.Element{Key: appendKey(key, r.def.ident, r.key.ID)}); found {
			out += el
		}
	}
	return out
}
