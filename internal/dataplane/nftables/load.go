package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Load implements dataplane.Driver. It emits the actual state of the owned tables. If a
// table cannot be repaired object by object (another release wrote it, or it is
// damaged) Load returns a RebuildError. Of the table of a family that is not served it
// emits only the root; that is not a desired object, so Apply deletes the whole table.
func (d *Driver) Load(ctx context.Context, emit func(dataplane.Key, string)) error {
	r, err := d.readAll(ctx, d.k, emit)
	if err != nil {
		return err
	}
	d.seen.Compared(r.at)
	for i := range r.sizes {
		d.sizes.loaded(i, &r.sizes[i])
	}
	if r.rebuild != nil {
		return r.rebuild
	}
	return nil
}

// Survey implements dataplane.Driver. It reads like Load, on a socket of its own, and
// changes no state of the Driver.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	if d.surveyor == nil {
		return fmt.Errorf("survey: %w: no netlink socket", dataplane.ErrUnsupported)
	}
	d.surveying.Lock()
	defer d.surveying.Unlock()
	r, err := d.readAll(ctx, d.surveyor, emit)
	if err == nil && r.rebuild != nil {
		return r.rebuild
	}
	return err
}

// readings are the results of readAll other than objects.
type readings struct {
	at      nft.Generation
	sizes   [2]setSizes
	rebuild *dataplane.RebuildError // nil if everything can be repaired object by object
}

// readAll reads the actual state of all owned tables. It does not change the Driver's
// cached state. If a concurrent change may have affected the result it returns ErrInterrupted.
func (d *Driver) readAll(ctx context.Context, k nft.Reader, emit func(dataplane.Key, string)) (out readings, err error) {
	gen, err := k.Generation(ctx)
	if err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	tables, err := k.Tables(ctx)
	if err != nil {
		return out, loadError(err)
	}
	for _, f := range bothFamilies {
		for i := range tables {
			if tables[i].Ref != tableRef(f) {
				continue
			}
			l := loader{d: d, k: k, f: f, put: func(k dataplane.Kind, id, value string) {
				emit(dataplane.Key{Kind: k, Family: f, ID: id}, value)
			}}
			if err := l.table(ctx, &tables[i]); err != nil {
				return out, loadError(err)
			}
			out.sizes[famIndex(f)] = l.sizes
			if l.damage != "" {
				if out.rebuild == nil {
					out.rebuild = &dataplane.RebuildError{Why: l.damage}
				}
				out.rebuild.Families = append(out.rebuild.Families, f)
			}
		}
	}
	if out.at, err = k.Generation(ctx); err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	if !d.seen.Quiet(ctx, gen, out.at) {
		return out, fmt.Errorf("load: %w", dataplane.ErrInterrupted)
	}
	return out, nil
}

// loadError returns the error of a failed Load. A set that was deleted between the list
// of sets and its dump is a concurrent change, so it is ErrInterrupted.
func loadError(err error) error {
	if errors.Is(err, nft.ErrInterrupted) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("load: %w: %w", dataplane.ErrInterrupted, err)
	}
	return fmt.Errorf("load: %w", err)
}

// markText is the start of the comment that identifies an owned table; the layout follows.
const markText = "fairlead "

// layoutOf returns the layout in the mark of a table, or ErrNotOurs if the table has
// no mark or a running program owns it.
func layoutOf(t *nft.Table) (value string, err error) {
	if t.Flags&nft.TableOwner != 0 {
		return "", fmt.Errorf("table %s %w: a running program owns it (netlink port %d); end that program or rename its table",
			t.Ref, dataplane.ErrNotOurs, t.Owner)
	}
	text, _ := comment(t.UserData)
	value, ours := strings.CutPrefix(text, markText)
	if !ours || value == "" {
		return "", fmt.Errorf("table %s %w: it does not have Fairlead's comment; if no program needs it, remove it with: nft delete table %s",
			t.Ref, dataplane.ErrNotOurs, t.Ref)
	}
	return value, nil
}

// comment returns the text that nft.Comment wrote, and reports whether there is one.
func comment(userData []byte) (string, bool) {
	if len(userData) < 3 || userData[0] != 0 || int(userData[1]) > len(userData)-2 || userData[1] == 0 {
		return "", false
	}
	return strings.TrimRight(string(userData[2:2+userData[1]]), "\x00"), true
}

// missing returns err, or nil if err means that the object to read does not exist.
func missing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
