package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// world is a Kernel holding a small table: map eps and verdict map services, chains lb and other, a rule that looks into eps.
type world struct {
	*testing.T
	k     Kernel
	other Kernel // the same rule set, as a neighbour writes it
	table TableRef
}

func newWorld(t *testing.T, k, other Kernel) *world {
	w := &world{t, k, other, TableRef{IPv4, "world"}}
	w.must(func(b *Batch) {
		b.NewTable(w.table, nil)
		b.NewSet(w.eps())
		b.NewSet(SetSpec{Ref: w.table.Set("services"), Key: []Part{Addr4, L4Proto, Port}, Verdicts: true})
		b.NewSet(SetSpec{Ref: w.table.Set("unused"), Key: []Part{Addr4}})
		b.NewChain(ChainSpec{Ref: w.table.Chain("lb")})
		b.NewChain(ChainSpec{Ref: w.table.Chain("other")})
		b.NewRule(w.lbRule())
	})
	return w
}

func (w *world) eps() SetSpec {
	return SetSpec{Ref: w.table.Set("eps"), Key: []Part{Addr4, L4Proto, Port, Slot}, Data: []Part{Addr4, Port}, Typeof: true, Size: 8}
}

func (w *world) lbRule() RuleSpec {
	return RuleSpec{Chain: w.table.Chain("lb"), Exprs: exprs(fields(IPv4, 0, daddr, l4proto, dport, slot(1)), e(LookupMap("eps", Word(0), Word(0))))}
}

// slotElement is slot n of a Service, served by host.
func slotElement(n uint32, host string) *Element {
	key := AppendSlot(AppendPort(AppendProto(AppendAddr(nil, netip.MustParseAddr("10.96.0.1")), 6), 80), n)
	return &Element{Key: key, Data: AppendPort(AppendAddr(nil, netip.MustParseAddr(host)), 8080)}
}

func service(vip string, v Verdict) *Element {
	return &Element{Key: AppendPort(AppendProto(AppendAddr(nil, netip.MustParseAddr(vip)), 6), 80), Verdict: v}
}

func (w *world) commit(build func(*Batch)) (Generation, error) {
	b := &Batch{}
	build(b)
	return w.k.Commit(context.Background(), b)
}

func (w *world) must(build func(*Batch)) Generation {
	w.Helper()
	g, err := w.commit(build)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

// refused commits and wants the errno with exactly these tags, and no trace of the batch.
func (w *world) refused(errno unix.Errno, tags []int, build func(*Batch)) {
	w.Helper()
	before := w.state()
	_, err := w.commit(build)
	var be *BatchError
	if !errors.As(err, &be) || !errors.Is(err, errno) || !slices.Equal(be.Tags, tags) {
		w.Fatalf("commit: %v (%+v), want %v for tags %v", err, be, errno, tags)
	}
	if after := w.state(); after != before {
		w.Fatalf("refused batch left a trace:\n%s\nbefore:\n%s", after, before)
	}
}

// state is everything in the table, and the generation.
func (w *world) state() string {
	w.Helper()
	ctx := context.Background()
	g, err1 := w.k.Generation(ctx)
	sets, err2 := w.k.Sets(ctx, w.table)
	chains, err3 := w.k.Chains(ctx, w.table)
	rules, err4 := w.k.Rules(ctx, w.table)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		w.Fatal(err)
	}
	s := fmt.Sprintln(g)
	for _, x := range sets {
		s += fmt.Sprintln(x.Ref, w.elements(x.Ref.Name))
	}
	for _, c := range chains {
		s += fmt.Sprintln(c.Ref, c.Use, c.Hook)
	}
	for _, r := range rules {
		s += fmt.Sprintln(r.Chain, r.Handle, r.Exprs)
	}
	return s
}

// elements are the set's elements as sorted text.
func (w *world) elements(set string) []string {
	w.Helper()
	var out []string
	err := w.k.Elements(context.Background(), w.table.Set(set), func(e *Element) error {
		out = append(out, fmt.Sprintf("%x:%x%s", e.Key, e.Data, e.Verdict.Chain))
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestBehaviour runs one suite against the kernel and against the model of it.
func TestBehaviour(t *testing.T) {
	kernels := []struct {
		name string
		open func(*testing.T) (k, other Kernel)
	}{
		{"kernel", func(t *testing.T) (k, other Kernel) { return ownNetns(t), another(t) }},
		{"fake", func(*testing.T) (k, other Kernel) { f := NewFake(); return f, f.Neighbour() }},
		{"counted", func(*testing.T) (k, other Kernel) {
			f := NewFake()
			return NewCounter(&Faulty{Kernel: f}), f.Neighbour()
		}},
	}
	for _, k := range kernels {
		for _, c := range slices.Concat(generationCases, watchCases, refusalCases, effectCases) {
			t.Run(k.name+"/"+c.name, func(t *testing.T) {
				k, other := k.open(t)
				c.run(newWorld(t, k, other))
			})
		}
	}
}

type behaviour struct {
	name string
	run  func(*world)
}

var generationCases = []behaviour{
	{"each commit moves the generation by one", func(w *world) {
		g := w.must(func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(0, "10.0.0.1")) })
		h := w.must(func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(1, "10.0.0.1")) })
		now, err := w.k.Generation(context.Background())
		if h != g.Next() || now != h || err != nil {
			w.Fatal(g, h, now, err)
		}
	}},
	{"a batch without effect keeps the generation", func(w *world) {
		add := func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(0, "10.0.0.1")) }
		g := w.must(add)
		if h := w.must(add); h != g {
			w.Fatal(g, h)
		}
		if h := w.must(func(b *Batch) { b.Expect = g }); h != g {
			w.Fatal("empty batch", g, h)
		}
	}},
	{"the expected generation commits", func(w *world) {
		g := w.must(func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(0, "10.0.0.1")) })
		h := w.must(func(b *Batch) { b.Expect = g; b.AddElement(w.table.Set("eps"), slotElement(1, "10.0.0.1")) })
		if h != g.Next() {
			w.Fatal(g, h)
		}
	}},
	{"another generation does not", func(w *world) {
		g := w.must(func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(0, "10.0.0.1")) })
		w.must(func(b *Batch) { b.AddElement(w.table.Set("eps"), slotElement(1, "10.0.0.1")) })
		before := w.state()
		for _, stale := range []func(*Batch){
			func(b *Batch) { b.Expect = g; b.AddElement(w.table.Set("eps"), slotElement(2, "10.0.0.1")) },
			func(b *Batch) { b.Expect = g },
		} {
			if _, err := w.commit(stale); !errors.Is(err, ErrGeneration) {
				w.Fatal(err)
			}
		}
		if after := w.state(); after != before {
			w.Fatal(after)
		}
	}},
	{"whatever comes first, the commit knows its generation", func(w *world) { firstOperations(w) }},
}
