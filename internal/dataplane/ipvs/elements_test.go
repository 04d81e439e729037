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

// TestElementsTwice: what one reading misses is not taken for missing. Where nobody has written since two readings agreed, one will do.
func TestElementsTwice(t *testing.T) {
	w := newWorld(t, Params{})
	rules := &growing{Fake: w.rules}
	w.d.p.Beside = Sockets{rules, w.ipvs, w.ipvs}
	want := func(i int) {
		t.Helper()
		w.Want(dataplanetest.Service(i), dataplanetest.ClusterIP(model.IPv4, i, 2))
		w.Sync(t)
	}
	look := func(services, readings int) {
		t.Helper()
		rules.read = 0
		n := 0
		err := w.d.Survey(t.Context(), func(k dataplane.Key, _ string) {
			if k.Kind == kindService {
				n++
			}
		})
		if err != nil || n != services || rules.read != readings {
			t.Errorf("%d Services in %d readings, %v; want %d in %d", n, rules.read, err, services, readings)
		}
	}
	want(0)
	want(1)
	rules.missed = 1
	look(2, 3) // the first one, and two that agree
	look(2, 1)
	rules.missed = 1
	look(2, 3)
	look(2, 1)
	want(2)
	look(3, 2)
	look(3, 1)
}
