package ipvs

import (
	"context"
	"testing"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/dataplanetest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// growing is nf_tables with a hash table that grows: the next readings of a set miss elements.
type growing struct {
	*nft.Fake
	missed int // how many of the next readings of services miss one
	read   int // how often services was read
}

func (g *growing) Elements(ctx context.Context, s nft.SetRef, emit func(*nft.Element) error) error {
	if s != tableRef(model.IPv4).Set("services") {
		return g.Fake.Elements(ctx, s, emit)
	}
	g.read++
	miss := g.missed > 0
	if miss {
		g.missed--
	}
	return g.Fake.Elements(ctx, s, func(e *nft.Element) error {
		if miss {
			miss = false
			return nil
		}
		return emit(e)
	})
}

// TestElementsTwice: an element that one reading misses is not reported as missing. If a set has its known sum, because only the Driver
// has written since it was read or created, one reading is enough.
func TestElementsTwice(t *testing.T) {
	w := newWorld(t, Params{})
	rules := &growing{Fake: w.rules}
	w.d.p.Beside = Sockets{rules, w.ipvs, w.ipvs}
	want := func(i, endpoints int) {
		t.Helper()
		w.Want(dataplanetest.Service(i), dataplanetest.ClusterIP(model.IPv4, i, endpoints))
		w.Sync(t)
	}
	look := func(when string, services, readings int) {
		t.Helper()
		rules.read = 0
		n := 0
		err := w.d.Survey(t.Context(), func(k dataplane.Key, _ string) {
			if k.Kind == kindService {
				n++
			}
		})
		if err != nil || n != services || rules.read != readings {
			t.Errorf("%s: %d Services in %d readings, %v; want %d in %d", when, n, rules.read, err, services, readings)
		}
	}
	stranger := func(do func(b *nft.Batch)) {
		t.Helper()
		var b nft.Batch
		do(&b)
		if _, err := w.rules.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	want(0, 2)
	want(1, 2)
	look("made", 2, 1)
	rules.missed = 1
	look("one reading misses one", 2, 2)
	want(2, 2)
	look("another", 3, 1)
	want(2, 0) // another verdict
	look("another verdict", 3, 1)
	w.Want(dataplanetest.Service(1))
	w.Sync(t)
	look("one goes", 2, 1)

	stranger(func(b *nft.Batch) { b.NewTable(nft.TableRef{Family: nft.IPv4, Name: "theirs"}, nil) }) // the notification of its tables is missing
	rules.missed = 1
	look("a stranger wrote, and one reading misses one", 2, 3) // the first one, and two that agree
	look("known again", 2, 1)
	w.Load(t)
	want(3, 2)
	look("known, and one more", 3, 1)

	stranger(func(b *nft.Batch) { b.DelTable(tableRef(model.IPv4)) })
	w.Load(t)
	w.Sync(t)
	look("made anew", 3, 1)
	stranger(func(b *nft.Batch) { b.NewChain(nft.ChainSpec{Ref: tableRef(model.IPv4).Chain("theirs")}) })
	w.Load(t)
	w.Sync(t)
	look("rebuilt", 3, 1)
}

// TestAgreed: a reader that runs concurrently with writes sees neither an older nor a newer sum of a set.
func TestAgreed(t *testing.T) {
	set := tableRef(model.IPv4).Set("services")
	op := dataplane.Op{Key: dataplane.Key{Kind: kindService, Family: model.IPv4, ID: "one"}, Want: verdictServe}
	adds := dataplane.ObjectSum(op.Key, op.Want)
	wrote := func(a *agreed, from, to nft.Generation) {
		a.wrote(from, to, []dataplane.Op{op}, func(*dataplane.Op) bool { return true })
	}
	for _, c := range []struct {
		name      string
		do        func(a *agreed)
		at, knows nft.Generation
		sum       uint64
		known     bool
	}{
		{"as it was read", func(*agreed) {}, 5, 0, 100, true},
		{"after neighbours' commits", func(*agreed) {}, 7, 7, 100, true},
		{"after commits that nobody accounts for", func(*agreed) {}, 7, 6, 0, false},
		{"before it was read", func(*agreed) {}, 4, 7, 0, false},
		{"after ours", func(a *agreed) { wrote(a, 5, 6) }, 6, 5, 100 + adds, true},
		{"after neighbours' and ours", func(a *agreed) { wrote(a, 7, 8) }, 8, 8, 100 + adds, true},
		{"as of before ours", func(a *agreed) { wrote(a, 5, 6) }, 5, 6, 0, false},
		{"somebody read what we wrote before we noted it", func(a *agreed) { a.upon(6, set, 300); wrote(a, 5, 6) }, 6, 6, 300, true},
		{"somebody who began to read before it ends later", func(a *agreed) { wrote(a, 5, 6); a.upon(5, set, 300) }, 6, 6, 100 + adds, true},
		{"somebody reads later", func(a *agreed) { a.upon(6, set, 300) }, 6, 5, 300, true},
		{"somebody read what others wrote after it, before we noted it", func(a *agreed) { a.upon(7, set, 300); wrote(a, 5, 6) }, 6, 6, 0, false},
		{"somebody reads, and does not know as of when", func(a *agreed) { a.upon(0, set, 300) }, 5, 5, 100, true},
		{"nothing but that is known", func(a *agreed) { *a = agreed{}; a.upon(0, set, 300) }, 0, 5, 0, false},
	} {
		a := &agreed{}
		a.upon(5, set, 100)
		c.do(a)
		if sum, known := a.sum(c.at, c.knows, set); known != c.known || known && sum != c.sum {
			t.Errorf("%s: %d, %t; want %d, %t", c.name, sum, known, c.sum, c.known)
		}
	}
}

// TestAccount: the account identifies the owned virtual servers, and whether one is of IPv6. A foreign set of its name, with other keys, is
// ignored.
func TestAccount(t *testing.T) {
	w := newWorld(t, Params{})
	want := func(when string, servers int, six bool) {
		t.Helper()
		r := w.d.reader(nil)
		if err := r.owned(t.Context()); err != nil || len(r.mine) != servers || r.six != six {
			t.Errorf("%s: %v, of IPv6: %t, %v; want %d, %t", when, r.mine, r.six, err, servers, six)
		}
	}
	w.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 1))
	w.Sync(t)
	want("IPv4", 1, false)
	w.Want(dataplanetest.Service(0), dataplanetest.ClusterIP(model.IPv4, 0, 1), dataplanetest.ClusterIP(model.IPv6, 0, 1))
	w.Sync(t)
	want("both", 2, true)

	var b nft.Batch
	for _, f := range allFamilies() {
		b.DelTable(tableRef(f))
	}
	set := tableRef(model.IPv4).Set("virtual-servers")
	b.NewTable(set.Table, nil)
	b.NewSet(nft.SetSpec{Ref: set, Key: []nft.Part{nft.Addr4}})
	b.AddElement(set, &nft.Element{Key: []byte{10, 0, 0, 1}})
	if _, err := w.rules.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	want("a stranger's", 0, false)
}
