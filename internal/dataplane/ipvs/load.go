package ipvs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Load implements dataplane.Driver.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	r := d.reader(emit)
	at, err := r.everything(ctx)
	if err != nil {
		return err
	}
	d.seen.Compared(at)
	d.sum.Store(r.sum)
	d.unsure = false
	return r.rebuild()
}

// everything reads tables, device and servers, and returns the generation of the rule set that it has read.
func (r *reader) everything(ctx context.Context) (at nft.Generation, err error) {
	before, err := r.from.NFT.Generation(ctx)
	if err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	r.at = before
	if err := r.tables(ctx); err != nil {
		return 0, loadError(err)
	}
	if err := r.all(ctx); err != nil {
		return 0, loadError(err)
	}
	at, err = r.from.NFT.Generation(ctx)
	if err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	if !r.d.seen.Quiet(ctx, before, at) {
		return 0, fmt.Errorf("load: %w", dataplane.ErrInterrupted)
	}
	return at, nil
}

// rebuild returns a RebuildError for the families that cannot be repaired object by object, or nil.
func (r *reader) rebuild() error {
	if len(r.broken.Families) > 0 {
		return &r.broken
	}
	return nil
}

// loadError classifies an error of Load. An object that vanishes between a list and its dump is a concurrent change like any other.
func loadError(err error) error {
	if errors.Is(err, nft.ErrInterrupted) || errors.Is(err, ipvs.ErrInterrupted) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("load: %w: %w", dataplane.ErrInterrupted, err)
	}
	return fmt.Errorf("load: %w", err)
}

// reader reads everything that the Driver owns.
type reader struct {
	d        *Driver
	from     Sockets
	families []model.Family
	emit     func(dataplane.Key, string) // nil: it only adds up the sums
	total    dataplane.Total             // of all objects
	sum      uint64                      // of the objects in IPVS, on the device and in the routing tables
	at       nft.Generation              // generation that it reads; 0: not known
	mine     map[ipvs.VirtualKey]bool    // the owned virtual servers, by the account in the tables
	six      bool                        // one of them, or an address on the device or of a route, is IPv6
	broken   dataplane.RebuildError

	rest   *ipvs.Rest // nil: it does not pause
	ids    []byte     // scratch buffer of server
	hashes [kinds]hashed
	last   ipvs.Virtual // a cache, because most are equal: valued is the value of the last one
	valued string
}

// reader returns a reader on the engine's sockets.
func (d *Driver) reader(emit func(dataplane.Key, string)) reader {
	return reader{d: d, from: Sockets{d.p.NFT, d.p.IPVS, d.p.Addresses}, families: d.families, emit: emit}
}

// tables reads the agent's tables completely.
func (r *reader) tables(ctx context.Context) error {
	list, err := r.from.NFT.Tables(ctx)
	if err != nil {
		return err
	}
	r.mine = map[ipvs.VirtualKey]bool{}
	for _, f := range allFamilies() {
		for i := range list {
			if list[i].Ref != tableRef(f) {
				continue
			}
			if why, err := r.table(ctx, f, &list[i]); err != nil {
				return err
			} else if why != "" {
				r.broken.Families, r.broken.Why = append(r.broken.Families, f), why
			}
		}
	}
	return nil
}

// markOf returns the layout in the comment of a table; "" if another program made the table.
func markOf(t *nft.Table) string {
	u := t.UserData
	if len(u) < 3 || u[0] != 0 || int(u[1]) > len(u)-2 {
		return ""
	}
	text := strings.TrimRight(string(u[2:2+u[1]]), "\x00")
	if !strings.HasPrefix(text, "fairlead-ipvs ") {
		return ""
	}
	return text
}

// table reads one table. It returns why the table cannot be repaired object by object and must be rebuilt, or "".
func (r *reader) table(ctx context.Context, f model.Family, t *nft.Table) (why string, err error) {
	put := func(k dataplane.Kind, id, value string) { r.put(dataplane.Key{Kind: k, Family: f, ID: id}, value) }
	switch value := markOf(t); {
	case value == "" || t.Flags&nft.TableOwner != 0:
		return "", fmt.Errorf("table %s %w: it does not have Fairlead's comment; if no program needs it, remove it with: nft delete table %s", t.Ref, dataplane.ErrNotOurs, t.Ref)
	case !r.d.serves(f):
		put(dataplane.KindRoot, "", value)
		return "", nil
	case value != layout:
		return "another layout", nil
	case t.Flags&nft.TableDormant != 0:
		return "the table is dormant", nil
	}
	k := r.from.NFT
	sets, err := k.Sets(ctx, t.Ref)
	if err = r.d.seen.Tolerate(err); err != nil {
		return "", err
	}
	chains, err := k.Chains(ctx, t.Ref)
	if err != nil {
		return "", err
	}
	rules, err := k.Rules(ctx, t.Ref)
	if err = r.d.seen.Tolerate(err); err != nil {
		return "", err
	}
	if why := damage(f, sets, chains); why != "" {
		return why, nil
	}
	put(dataplane.KindRoot, "", layout)
	return "", r.contents(ctx, f, rowsOf{sets, chains, rules})
}

// rowsOf holds the sets, chains and rules of a table.
type rowsOf struct {
	sets   []nft.Set
	chains []nft.Chain
	rules  []nft.Rule
}

func (r *reader) contents(ctx context.Context, f model.Family, of rowsOf) error {
	put := func(k dataplane.Kind, id, value string) { r.put(dataplane.Key{Kind: k, Family: f, ID: id}, value) }
	tags := map[string][][]byte{}
	for i := range of.rules {
		tags[of.rules[i].Chain.Name] = append(tags[of.rules[i].Chain.Name], of.rules[i].UserData)
	}
	for i := range of.chains {
		put(kindChain, of.chains[i].Ref.Name, digest(tags[of.chains[i].Ref.Name]))
	}
	for _, def := range setDefs() {
		if !slices.ContainsFunc(of.sets, func(s nft.Set) bool { return s.Ref.Name == def.name }) {
			continue
		}
		put(kindSet, def.name, present)
		elements, err := r.elements(ctx, f, &def)
		if err != nil {
			return err
		}
		r.report(f, &def, elements)
	}
	return nil
}

// damage returns the damage that no repair of single objects can fix, or "". A set or chain that the Driver does not own may be in use,
// and a declaration cannot be changed.
func damage(f model.Family, sets []nft.Set, chains []nft.Chain) string {
	for i := range sets {
		if sets[i].Flags&nft.SetAnonymous != 0 {
			continue // part of a foreign rule, which its chain's digest shows
		}
		at := slices.IndexFunc(setDefs(), func(d setDef) bool { return d.name == sets[i].Ref.Name })
		if at < 0 {
			return "a foreign set"
		}
		if spec := setDefs()[at].spec(f); !spec.Matches(sets[i]) {
			return "the declaration of a set"
		}
	}
	for i := range chains {
		at := slices.IndexFunc(chainDefs(), func(c chainDef) bool { return c.name == chains[i].Ref.Name })
		if at < 0 {
			return "a foreign chain"
		}
		want := chainDefs()[at].hook
		if (want == nil) != (chains[i].Hook == nil) || want != nil && *want != *chains[i].Hook {
			return "the hook of a chain"
		}
	}
	return ""
}

// owned reads only which virtual servers the agent owns.
func (r *reader) owned(ctx context.Context) error {
	r.mine = map[ipvs.VirtualKey]bool{}
	def := setDef{name: "virtual-servers", kind: kindOwned}
	for _, f := range r.families {
		elements, err := r.elements(ctx, f, &def)
		switch {
		case err == nil:
			r.own(f, elements)
		case !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return nil
}
