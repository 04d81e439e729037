package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// stickiness knows which Frontends remember clients, and what must be forgotten:
// the affinity map is filled by packets, so nothing else says who is in it.
type stickiness struct {
	frontends map[frontID]struct{}
	stale     map[frontID]goneEndpoints
	// except are slots to go on remembering, of Frontends whose endpoints are else all gone.
	except map[frontID]string
}

// frontID is a Frontend as its packed ID.
type frontID struct {
	family model.Family
	id     string
}

// goneEndpoints are packed like slots; nil means that every endpoint is gone.
type goneEndpoints map[string]struct{}

func newStickiness() stickiness {
	return stickiness{frontends: map[frontID]struct{}{}, stale: map[frontID]goneEndpoints{}, except: map[frontID]string{}}
}

// has tells whether a remembered endpoint of a Frontend must be forgotten.
func (s *stickiness) has(f model.Family, id []byte, endpoint []byte) bool {
	at := frontID{f, string(id)}
	gone, some := s.stale[at]
	if !some || gone == nil {
		return some && !hasSlot(s.except[at], endpoint)
	}
	_, some = gone[string(endpoint)]
	return some
}

// forget makes clients forget what the ops, which d.plan has sorted, took from
// Frontends.
func (d *Driver) forget(ctx context.Context, ops []dataplane.Op) error {
	d.note(ops)
	if err := d.sweep(ctx); err != nil {
		d.unsure = true
		return fmt.Errorf("clients still remember endpoints that are gone: %w", err)
	}
	return nil
}

// note keeps what the ops took from Frontends that remember clients.
func (d *Driver) note(ops []dataplane.Op) {
	s := &d.stick
	for f := range bothFamilies {
		if len(s.frontends) > 0 {
			for _, k := range [...]dataplane.Kind{kindEndpoints, kindLocalEndpoints, kindNodePortEndpoints, kindNodePortLocalEndpoints} {
				for _, i := range d.plan.of(f, k) {
					s.lost(&ops[i])
				}
			}
			for _, k := range [...]dataplane.Kind{kindLocalEndpoints, kindNodePortLocalEndpoints} {
				for _, i := range d.plan.of(f, k) {
					s.narrowed(&ops[i])
				}
			}
		}
		for _, k := range [...]dataplane.Kind{kindAffinity, kindAffinityNodePort} {
			for _, i := range d.plan.of(f, k) {
				s.turned(&ops[i])
			}
		}
	}
}

// lost notes the endpoints that a pool lost.
func (s *stickiness) lost(o *dataplane.Op) {
	at := frontID{o.Key.Family, o.Key.ID}
	if _, remembers := s.frontends[at]; !remembers {
		return
	}
	gone, known := s.stale[at]
	if known && gone == nil {
		delete(s.except, at)
		return
	}
	w := defOf(o.Key.Kind).slotWidth(o.Key.Family)
	for i := 0; i+w <= len(o.Have); i += w {
		el := o.Have[i : i+w]
		if i+w <= len(o.Want) && o.Want[i:i+w] == el || hole(el) { // nearly all, mostly
			continue
		}
		if !hasSlot(o.Want, el) {
			if gone == nil {
				gone = goneEndpoints{}
			}
			gone[strings.Clone(el)] = struct{}{}
		}
	}
	if gone != nil {
		s.stale[at] = gone
	}
}

func hasSlot[T, S string | []byte](value T, slot S) bool {
	for i := 0; i+len(slot) <= len(value); i += len(slot) {
		if string(value[i:i+len(slot)]) == string(slot) { // compares in place
			return true
		}
	}
	return false
}

// narrowed notes a Frontend that comes under externalTrafficPolicy Local, with
// endpoints that its outside clients do not use any more although the cluster's
// pool still has them: the answer to an address that is not masqueraded would not
// come back through this node.
func (s *stickiness) narrowed(o *dataplane.Op) {
	at := frontID{o.Key.Family, o.Key.ID}
	if _, remembers := s.frontends[at]; remembers && o.Have == "" && o.Want != "" {
		s.stale[at], s.except[at] = nil, o.Want
	}
}

// turned notes a Frontend that begins or ceases to remember. What it remembered
// must not come back when it begins again.
func (s *stickiness) turned(o *dataplane.Op) {
	at := frontID{o.Key.Family, o.Key.ID}
	if o.Want == "" {
		delete(s.except, at)
		delete(s.frontends, at)
		s.stale[at] = nil
		return
	}
	s.frontends[at] = struct{}{}
}

// sweepRounds: a packet that met the old slots may learn after the first round.
const sweepRounds = 2

// sweep deletes what clients remember of endpoints that are gone. It comes after
// the commit, for until then packets go on learning (nftables.md E3). What it
// cannot do Apply reports as its own failure, and the Load that follows does: so it
// is gone before a later commit could switch affinity on again. After that
// nobody could tell what a Frontend remembered of old from what a client has just
// made it learn. (That happens to a pod's client, at worst, that meets an endpoint
// elsewhere between the commit and the sweep of narrowed: it draws again.)
func (d *Driver) sweep(ctx context.Context) error {
	if len(d.stick.stale) == 0 {
		return nil
	}
	for range sweepRounds {
		for _, f := range bothFamilies {
			if err := d.sweepFamily(ctx, f); err != nil {
				return err
			}
		}
	}
	clear(d.stick.stale)
	clear(d.stick.except)
	return nil
}

// sweepTries bounds how often we look again, because a client meanwhile chose
// another endpoint, or its time ran out between the two halves of a deletion.
const sweepTries = 3

func (d *Driver) sweepFamily(ctx context.Context, f model.Family) error {
	wanted := false
	for at := range d.stick.stale {
		wanted = wanted || at.family == f
	}
	if !wanted || !d.serves(f) {
		return nil
	}
	var err error
	for range sweepTries {
		var stale []nft.Element
		if stale, err = d.staleElements(ctx, f); err != nil || len(stale) == 0 {
			return err
		}
		d.batch.Reset()
		set := tableRef(f).Set(affinityMap)
		for i := range stale {
			d.batch.AddElement(set, &stale[i])
		}
		for i := range stale {
			d.batch.DelElement(set, &nft.Element{Key: stale[i].Key})
		}
		if err = d.commit(ctx); !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return err
}

// staleElements reads what must be forgotten.
func (d *Driver) staleElements(ctx context.Context, f model.Family) ([]nft.Element, error) {
	var out []nft.Element
	err := d.tolerate(d.k.Elements(ctx, tableRef(f).Set(affinityMap), func(e *nft.Element) error {
		if vip, port, endpoint, ok := remembers(f, e); ok && (d.stick.has(f, vip, endpoint) || d.stick.has(f, port, endpoint)) {
			out = append(out, nft.Element{Key: append([]byte(nil), e.Key...), Data: append([]byte(nil), e.Data...)})
		}
		return nil
	}))
	return out, err
}

// remembers reads an element of the affinity map: the Frontend as a VIP's ID and
// as a NodePort's (which of the two it is, the map does not say), and the
// endpoint packed like a slot.
func remembers(f model.Family, e *nft.Element) (vip, port, endpoint []byte, ok bool) {
	a := addrLen(f)
	if len(e.Key) != 2*a+8 || len(e.Data) != a+4 {
		return nil, nil, nil, false
	}
	vip, _ = appendIDOf(make([]byte, 0, 20), identVIP, e.Key[a:], e.Key[a:])
	return vip, vip[a:], e.Data[:a+2], true
}
