package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/ipvs"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Look holds the sockets with which Compare reads.
type Look struct {
	NFT       nft.Finder
	IPVS      ipvs.Kernel
	Addresses ipvs.Addresses
}

// Compare implements dataplane.Driver. IPVS has no request for one real server, so Compare lists all real servers of
// the virtual server.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	if d.p.Look == (Look{}) {
		return fmt.Errorf("compare: %w: no netlink socket", dataplane.ErrUnsupported)
	}
	d.looking.Lock()
	defer d.looking.Unlock()
	l := look{Look: d.p.Look, ctx: ctx, reals: map[ipvs.VirtualKey][]ipvs.Real{}}
	for i := range want {
		found, err := l.at(&want[i])
		if err != nil {
			return fmt.Errorf("compare %s: %w", d.KeyString(want[i].Key), err)
		}
		if found != want[i].Value {
			differs(want[i].Key, found)
		}
	}
	return nil
}

// look caches what one Compare has listed.
type look struct {
	Look
	ctx   context.Context
	reals map[ipvs.VirtualKey][]ipvs.Real
}

// at returns the actual value of an object in the kernel; "" if it is absent.
func (l *look) at(o *dataplane.Object) (string, error) {
	k := o.Key
	switch k.Kind {
	case dataplane.KindRoot:
		row, found, err := l.NFT.Table(l.ctx, tableRef(k.Family))
		if !found || row.Flags&nft.TableDormant != 0 {
			return "", err
		}
		return markOf(&row), err
	case kindSet:
		return l.set(k)
	case kindChain:
		return l.chain(k)
	case kindDevice:
		has, err := l.Addresses.HasDevice(l.ctx)
		return presentIf(has), err
	case kindAddress:
		return l.address(k)
	case kindRule:
		mark, err := l.Addresses.Rule(l.ctx, k.Family == model.IPv6)
		return valueOfRule(mark), err
	case kindRoute:
		list, err := l.Addresses.Routes(l.ctx)
		a, _ := netip.AddrFromSlice([]byte(k.ID)) // Render made the ID from an address
		return presentIf(slices.Contains(list, a)), err
	case kindVirtual:
		of, _ := parseVirtual(k.ID, k.Family)
		v, found, err := l.IPVS.Virtual(l.ctx, of)
		if !found {
			return "", err
		}
		return valueOfVirtual(&v), err
	case kindReal, kindWeight:
		return l.real(k)
	}
	if isElement(k.Kind) {
		return l.element(k)
	}
	return "", nil // a range of ports, which is always refused
}

func presentIf(there bool) string {
	if there {
		return present
	}
	return ""
}

func (l *look) set(k dataplane.Key) (string, error) {
	row, found, err := l.NFT.Set(l.ctx, tableRef(k.Family).Set(k.ID))
	at := slices.IndexFunc(setDefs(), func(d setDef) bool { return d.name == k.ID })
	if !found || at < 0 {
		return "", err
	}
	if spec := setDefs()[at].spec(k.Family); !spec.Matches(row) {
		return "another declaration", nil
	}
	return present, nil
}

func (l *look) chain(k dataplane.Key) (string, error) {
	ref := tableRef(k.Family).Chain(k.ID)
	row, found, err := l.NFT.Chain(l.ctx, ref)
	at := slices.IndexFunc(chainDefs(), func(c chainDef) bool { return c.name == k.ID })
	if !found || at < 0 {
		return "", err
	}
	want := chainDefs()[at].hook
	if (want == nil) != (row.Hook == nil) || want != nil && *want != *row.Hook {
		return "another hook", nil
	}
	rules, err := l.NFT.ChainRules(l.ctx, ref)
	var tags [][]byte
	for i := range rules {
		tags = append(tags, rules[i].UserData)
	}
	return digest(tags), err
}

// element looks up one element; its ID is the kernel's key, for a range both ends.
func (l *look) element(k dataplane.Key) (string, error) {
	at := slices.IndexFunc(setDefs(), func(d setDef) bool { return d.kind == k.Kind })
	def := setDefs()[at]
	want := nft.Element{Key: []byte(k.ID)}
	if def.ranges {
		half := len(k.ID) / 2
		want = nft.Element{Key: []byte(k.ID[:half]), KeyEnd: []byte(k.ID[half:])}
	}
	got, found, err := l.NFT.Element(l.ctx, tableRef(k.Family).Set(def.name), &want)
	switch {
	case errors.Is(err, unix.EINVAL): // a set of that name, with other keys
		return "", nil
	case !found || err != nil:
		return "", err
	case def.verdicts:
		return valueOf(got.Verdict), nil
	}
	return present, nil
}

func (l *look) address(k dataplane.Key) (string, error) {
	a, _ := netip.AddrFromSlice([]byte(k.ID)) // the agent made it from an address
	has, err := l.Addresses.Has(l.ctx, a)
	return presentIf(has), err
}

func (l *look) real(k dataplane.Key) (_ string, err error) {
	of, at := parseReal(k.ID, k.Family)
	list, known := l.reals[of]
	if !known {
		if list, err = l.IPVS.Reals(l.ctx, of); err != nil {
			return "", err
		}
		l.reals[of] = list
	}
	i := slices.IndexFunc(list, func(r ipvs.Real) bool { return r.At == at })
	switch {
	case i < 0:
		return "", nil
	case k.Kind == kindWeight:
		return valueOfWeight(&list[i]), nil
	case list[i].Method != 0:
		return "another method", nil
	}
	return present, nil
}
