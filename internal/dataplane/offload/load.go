package offload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// readings is the maximum number of attempts to read the tables without a concurrent write of another program.
const readings = 4

// errMoving is returned if another program wrote during the read: the result may be inconsistent.
var errMoving = errors.New("another program changes the rules continuously")

// found is one object as it was read.
type found struct {
	key   dataplane.Key
	value string
}

// load reports the actual objects of this package in the kernel. If they cannot be read it reports nothing; the engine then writes
// all of them again, which is harmless.
func (s *side) load(ctx context.Context, emit func(dataplane.Key, string)) {
	r, err := s.quiet(ctx, s.engines())
	switch {
	case err == nil:
		s.book = r.book
		r.each(emit)
		if s.own {
			s.seen.Compared(r.at)
		}
		s.tell(func(st *Status) { st.Devices = r.devices })
		s.well()
	case ctx.Err() == nil: // else the load was cancelled, and the state of the driver is unchanged
		s.book = newBook()
		s.fail("read", err)
	}
}

// survey reports the same objects as load and does not change the state of the driver. For a permanent read error it reports
// nothing and returns nil, as load reports nothing then.
func (s *side) survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	if s.p.Reader == nil {
		return fmt.Errorf("survey: %w: no netlink socket for the offload tables", dataplane.ErrUnsupported)
	}
	s.surveying.Lock()
	defer s.surveying.Unlock()
	r, err := s.quiet(ctx, s.p.Reader)
	switch {
	case err == nil:
		r.each(emit)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case moving(err):
		return fmt.Errorf("survey: %w: %w", dataplane.ErrInterrupted, err)
	}
	return nil
}

// moving reports whether an error means that a concurrent write may have made the read inconsistent.
func moving(err error) bool { return errors.Is(err, errMoving) || errors.Is(err, nft.ErrInterrupted) }

// enginesReader is a Reader that uses the sockets of the engine.
type enginesReader struct {
	nft.Reader
	flowtables func(context.Context, nft.TableRef) ([]nft.Flowtable, error)
}

// Flowtables implements Reader.
func (r enginesReader) Flowtables(ctx context.Context, t nft.TableRef) ([]nft.Flowtable, error) {
	return r.flowtables(ctx, t)
}

func (s *side) engines() Reader { return enginesReader{s.p.Kernel, s.p.Flowtables} }

// quiet retries read until no other program writes concurrently, at most readings times.
func (s *side) quiet(ctx context.Context, from Reader) (r reader, err error) {
	for range readings {
		if r, err = s.read(ctx, from); err == nil || !moving(err) || ctx.Err() != nil {
			break
		}
	}
	return r, err
}

// read reads both tables once.
func (s *side) read(ctx context.Context, from Reader) (reader, error) {
	r := reader{s: s, from: from, book: newBook()}
	before, err := from.Generation(ctx)
	if err != nil {
		return r, err
	}
	tables, err := from.Tables(ctx)
	if err != nil {
		return r, err
	}
	for i, f := range families() {
		for t := range tables {
			if tables[t].Ref == tableRef(f) {
				if err := r.table(ctx, i, &tables[t]); err != nil {
					return r, err
				}
			}
		}
	}
	if r.at, err = from.Generation(ctx); err != nil {
		return r, err
	}
	if !s.seen.Quiet(ctx, before, r.at) {
		return r, errMoving
	}
	return r, nil
}

// reader is the state and the result of one read.
type reader struct {
	s       *side
	from    Reader
	at      nft.Generation
	all     []found
	book    book
	devices int
}

func (r *reader) each(emit func(dataplane.Key, string)) {
	for _, x := range r.all {
		emit(x.key, x.value)
	}
}

func (r *reader) table(ctx context.Context, i int, t *nft.Table) error {
	f, k := families()[i], r.from
	put := func(kind dataplane.Kind, id, value string) {
		r.all = append(r.all, found{dataplane.Key{Kind: kind, Family: f, ID: id}, value})
	}
	text, _ := commentOf(t.UserData)
	if !strings.HasPrefix(text, "fairlead-offload ") || t.Flags&nft.TableOwner != 0 {
		return fmt.Errorf("table %s %w: it does not have Fairlead's comment; if no program needs it, remove it with: nft delete table %s", t.Ref, dataplane.ErrNotOurs, t.Ref)
	}
	sets, err := k.Sets(ctx, t.Ref)
	if err = r.s.seen.Tolerate(err); err != nil {
		return err
	}
	chains, err := k.Chains(ctx, t.Ref)
	if err != nil {
		return err
	}
	rules, err := k.Rules(ctx, t.Ref)
	if err = r.s.seen.Tolerate(err); err != nil {
		return err
	}
	flows, err := k.Flowtables(ctx, t.Ref)
	if err != nil {
		return err
	}
	r.book.table[i] = true
	if text != layout || t.Flags&nft.TableDormant != 0 || damaged(f, sets, chains, flows) {
		put(kindTable, "", "not as we make it") // the engine then rebuilds it
		return nil
	}
	put(kindTable, "", layout)
	for n := range chains {
		put(kindChain, chains[n].Ref.Name, present)
		r.book.chains[i][chains[n].Ref.Name] = true
	}
	r.rules(i, rules, put)
	for n := range sets {
		if sets[n].Flags&nft.SetAnonymous == 0 {
			put(kindSet, sets[n].Ref.Name, present)
			if err := r.set(ctx, i, sets[n].Ref, put); err != nil {
				return err
			}
		}
	}
	return r.flows(i, flows, put)
}

// damaged reports whether the table contains drift that cannot be repaired object by object.
func damaged(f model.Family, sets []nft.Set, chains []nft.Chain, flows []nft.Flowtable) bool {
	return slices.ContainsFunc(sets, func(row nft.Set) bool {
		spec, ours := setSpec(f, row.Ref.Name)
		return row.Flags&nft.SetAnonymous == 0 && (!ours || !spec.Matches(row))
	}) || slices.ContainsFunc(chains, func(row nft.Chain) bool {
		return !isChain(row.Ref.Name) || !sameHook(row.Hook, chainSpec(f, row.Ref.Name).Hook)
	}) || slices.ContainsFunc(flows, func(row nft.Flowtable) bool {
		return row.Ref.Name != flowtable || !row.Counter
	})
}

func sameHook(a, b *nft.Hook) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// rules reports the rules, grouped by their id. A foreign rule is reported as an object of its own, which causes a rewrite of the
// rules.
func (r *reader) rules(i int, rows []nft.Rule, put func(dataplane.Kind, string, string)) {
	tags := map[string][]string{}
	for n := range rows {
		text, _ := commentOf(rows[n].UserData)
		id, ours := idOf(text)
		if !ours {
			id, text = "foreign", "foreign"
		} else {
			r.book.rulesOf[i][id] = true
		}
		tags[id] = append(tags[id], placed(rows[n].Chain, text))
	}
	for _, id := range slices.Sorted(maps.Keys(tags)) {
		slices.Sort(tags[id])
		put(kindRule, id, strings.Join(tags[id], ", "))
	}
}

func (r *reader) set(ctx context.Context, i int, ref nft.SetRef, put func(dataplane.Kind, string, string)) error {
	var ends []nft.Element
	err := r.from.Elements(ctx, ref, func(e *nft.Element) error {
		if ref.Name == excluded {
			ends = append(ends, nft.Element{Key: slices.Clone(e.Key), Flags: e.Flags})
			return ctx.Err()
		}
		put(kindMember, ref.Name+"|"+string(e.Key), present)
		r.book.members[i][ref.Name]++
		return ctx.Err()
	})
	if list, ok := packed(ends, families()[i]); !ok {
		put(kindExcluded, "", "not as we write it")
	} else if list != "" {
		put(kindExcluded, "", list)
	}
	return r.s.seen.Tolerate(err)
}

// flows reports the flowtable and its devices. A device that the kernel lists is the one that has the name now: a later
// device of the same name would not be in the flowtable.
func (r *reader) flows(i int, list []nft.Flowtable, put func(dataplane.Kind, string, string)) error {
	if len(list) == 0 {
		return nil
	}
	put(kindFlowtable, "", present)
	links, err := r.s.p.Links()
	if err != nil {
		return fmt.Errorf("list the links: %w", err)
	}
	r.devices = max(r.devices, len(list[0].Devices))
	r.book.flowtable[i], r.book.devices[i] = true, list[0].Devices
	for _, d := range list[0].Devices {
		var link model.Link // index 0: the device has just been deleted
		if at := slices.IndexFunc(links, func(l model.Link) bool { return l.Name == d }); at >= 0 {
			link = links[at]
		}
		put(kindDevice, d, deviceValue(&link))
	}
	return nil
}
