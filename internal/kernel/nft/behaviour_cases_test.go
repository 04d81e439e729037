package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

func (w *world) add(b *Batch, tag int, n uint32, host string) {
	b.Tag(tag)
	b.AddElement(w.table.Set("eps"), slotElement(n, host))
}

func (w *world) del(b *Batch, tag int, n uint32) {
	b.Tag(tag)
	b.DelElement(w.table.Set("eps"), &Element{Key: slotElement(n, "10.0.0.1").Key})
}

var refusalCases = []behaviour{
	{"other data for a present key", func(w *world) {
		w.must(func(b *Batch) { w.add(b, 0, 0, "10.0.0.1") })
		w.refused(unix.EEXIST, []int{8}, func(b *Batch) {
			w.add(b, 7, 1, "10.0.0.1")
			w.add(b, 8, 0, "10.0.0.2")
			w.add(b, 9, 2, "10.0.0.1")
		})
	}},
	{"delete of an absent element undoes the good ones", func(w *world) {
		w.must(func(b *Batch) { w.add(b, 0, 0, "10.0.0.1"); w.add(b, 0, 1, "10.0.0.1") })
		w.refused(unix.ENOENT, []int{-5}, func(b *Batch) {
			w.del(b, 3, 0)
			w.del(b, -5, 4)
			w.del(b, 6, 1)
		})
	}},
	{"several refusals are all told", func(w *world) {
		w.refused(unix.ENOENT, []int{1, 3, 5}, func(b *Batch) {
			w.del(b, 1, 0)
			w.add(b, 2, 1, "10.0.0.1")
			w.del(b, 3, 2)
			b.Tag(4)
			b.NewChain(ChainSpec{Ref: w.table.Chain("fresh")})
			b.Tag(5)
			b.DelChain(w.table.Chain("absent"))
		})
	}},
	{"an absent set refuses all its elements", func(w *world) {
		w.refused(unix.ENOENT, []int{1, 2}, func(b *Batch) {
			for tag := 1; tag <= 2; tag++ {
				b.Tag(tag)
				b.AddElement(w.table.Set("absent"), slotElement(0, "10.0.0.1"))
			}
		})
	}},
	{"an absent table", func(w *world) {
		t := TableRef{IPv6, "absent"}
		w.refused(unix.ENOENT, []int{1}, func(b *Batch) { b.Tag(1); b.DelTable(t) })
		w.refused(unix.ENOENT, []int{1}, func(b *Batch) { b.Tag(1); b.AddElement(t.Set("s"), slotElement(0, "10.0.0.1")) })
		w.refused(unix.ENOENT, []int{1}, func(b *Batch) { b.Tag(1); b.NewChain(ChainSpec{Ref: t.Chain("c")}) })
	}},
	{"a verdict to an absent chain", func(w *world) {
		w.refused(unix.ENOENT, []int{2}, func(b *Batch) {
			b.Tag(2)
			b.AddElement(w.table.Set("services"), service("10.96.0.1", Goto("absent")))
		})
		w.refused(unix.ENOENT, []int{2}, func(b *Batch) {
			b.Tag(2)
			b.NewRule(RuleSpec{Chain: w.table.Chain("other"), Exprs: verdict(Jump("absent"))})
		})
	}},
	{"a rule on an absent set or chain", func(w *world) {
		w.refused(unix.ENOENT, []int{1, 2}, func(b *Batch) {
			b.Tag(1)
			b.NewRule(RuleSpec{Chain: w.table.Chain("other"), Exprs: exprs(fields(IPv4, 0, daddr), e(InSet("absent", Word(0))))})
			b.Tag(2)
			b.NewRule(RuleSpec{Chain: w.table.Chain("absent"), Exprs: verdict(Accept())})
		})
	}},
	{"delete of a chain that an element leads to", func(w *world) {
		w.must(func(b *Batch) { b.AddElement(w.table.Set("services"), service("10.96.0.1", Goto("lb"))) })
		w.refused(unix.EBUSY, []int{1}, func(b *Batch) { b.Tag(1); b.DelChain(w.table.Chain("lb")) })
	}},
	{"delete of a chain that a rule leads to", func(w *world) {
		w.must(func(b *Batch) { b.NewRule(RuleSpec{Chain: w.table.Chain("other"), Exprs: verdict(Jump("lb"))}) })
		w.refused(unix.EBUSY, []int{1}, func(b *Batch) { b.Tag(1); b.DelChain(w.table.Chain("lb")) })
	}},
	{"delete of a set that a rule uses", func(w *world) {
		w.refused(unix.EBUSY, []int{1}, func(b *Batch) { b.Tag(1); b.DelSet(w.table.Set("eps")) })
	}},
	{"one element too many", func(w *world) {
		w.refused(unix.ENFILE, []int{8}, func(b *Batch) {
			for n := range 9 {
				w.add(b, n, uint32(n), "10.0.0.1")
			}
		})
	}},
	{"another set of the same name", func(w *world) {
		w.refused(unix.EEXIST, []int{1}, func(b *Batch) {
			b.Tag(1)
			b.NewSet(SetSpec{Ref: w.table.Set("eps"), Key: []Part{Addr4}})
		})
	}},
	{"a dump of an absent set", func(w *world) {
		err := w.k.Elements(context.Background(), w.table.Set("absent"), func(*Element) error { return nil })
		if !errors.Is(err, unix.ENOENT) {
			w.Fatal(err)
		}
	}},
}

var effectCases = []behaviour{
	{"one batch replaces a slot", func(w *world) {
		w.must(func(b *Batch) { w.add(b, 0, 0, "10.0.0.1"); w.add(b, 0, 1, "10.0.0.2") })
		w.must(func(b *Batch) { w.del(b, 0, 0); w.add(b, 0, 0, "10.0.0.9") })
		want := []string{"0a600001060000000050000000000000:0a0000091f900000", "0a600001060000000050000001000000:0a0000021f900000"}
		if got := w.elements("eps"); !slices.Equal(got, want) {
			w.Fatalf("got %q, want %q", got, want)
		}
	}},
	{"chains in use go in one batch with what uses them", func(w *world) {
		w.must(func(b *Batch) {
			b.NewRule(RuleSpec{Chain: w.table.Chain("other"), Exprs: verdict(Jump("lb"))})
			b.AddElement(w.table.Set("services"), service("10.96.0.1", Goto("lb")))
		})
		w.must(func(b *Batch) {
			b.FlushSet(w.table.Set("services"))
			b.FlushChain(w.table.Chain("other"))
			b.DelChain(w.table.Chain("lb"))
			b.DelSet(w.table.Set("eps"))
		})
		chains, err := w.k.Chains(context.Background(), w.table)
		if err != nil || len(chains) != 1 || chains[0].Ref.Name != "other" || chains[0].Use != 0 {
			w.Fatal(chains, err)
		}
	}},
	{"rules keep their order and go by handle", func(w *world) {
		first, last := verdict(Accept()), verdict(Drop())
		w.must(func(b *Batch) {
			b.NewRule(RuleSpec{Chain: w.table.Chain("lb"), Exprs: last})
			b.NewRule(RuleSpec{Chain: w.table.Chain("lb"), Exprs: first, First: true, UserData: Comment("first")})
		})
		rules, err := w.k.Rules(context.Background(), w.table)
		if err != nil || len(rules) != 3 {
			w.Fatal(rules, err)
		}
		specs := []RuleSpec{{Chain: rules[0].Chain, Exprs: first, UserData: Comment("first")}, w.lbRule(), {Chain: rules[0].Chain, Exprs: last}}
		for i := range specs {
			if !specs[i].Matches(rules[i]) {
				w.Errorf("rule %d is %x", i, rules[i].Exprs)
			}
		}
		w.must(func(b *Batch) { b.DelRule(rules[1].Chain, rules[1].Handle) })
		w.must(func(b *Batch) { b.DelSet(w.table.Set("eps")) })
	}},
	{"a deleted table takes everything along", func(w *world) {
		w.must(func(b *Batch) { b.DelTable(w.table) })
		tables, err1 := w.k.Tables(context.Background())
		sets, err2 := w.k.Sets(context.Background(), w.table)
		rules, err3 := w.k.Rules(context.Background(), w.table)
		if err := errors.Join(err1, err2, err3); err != nil || len(tables)+len(sets)+len(rules) > 0 {
			w.Fatal(tables, sets, rules, err)
		}
	}},
	{"a dump ends with emit's error and another follows", func(w *world) {
		w.must(func(b *Batch) { w.add(b, 0, 0, "10.0.0.1"); w.add(b, 0, 1, "10.0.0.1") })
		enough, n := errors.New("enough"), 0
		err := w.k.Elements(context.Background(), w.table.Set("eps"), func(*Element) error { n++; return enough })
		if !errors.Is(err, enough) || n != 1 || len(w.elements("eps")) != 2 {
			w.Fatal(err, n)
		}
	}},
	{"a batch commits again as it is", func(w *world) {
		b := &Batch{}
		w.add(b, 1, 0, "10.0.0.1")
		for range 2 {
			if _, err := w.k.Commit(context.Background(), b); err != nil {
				w.Fatal(err)
			}
		}
		w.add(b, 2, 1, "10.0.0.1")
		if _, err := w.k.Commit(context.Background(), b); err != nil || len(w.elements("eps")) != 2 {
			w.Fatal(err, w.elements("eps"))
		}
	}},
	{"ranges over a concatenation", func(w *world) {
		s := SetSpec{Ref: w.table.Set("ranges"), Key: []Part{Addr4, L4Proto, Port, Addr4}, Flags: SetInterval}
		allowed := func(prefix string) *Element {
			low, high := PrefixBounds(netip.MustParsePrefix(prefix))
			key := slotElement(0, "10.0.0.1").Key[:12]
			return &Element{Key: AppendAddr(slices.Clone(key), low), KeyEnd: AppendAddr(slices.Clone(key), high)}
		}
		w.must(func(b *Batch) { b.NewSet(s); b.AddElement(s.Ref, allowed("192.0.2.0/24")) })
		w.must(func(b *Batch) { b.AddElement(s.Ref, allowed("192.0.2.0/24")) })
		// 6.12 and 6.18 refuse a range inside another; 6.1.192 says yes and does not add it.
		inner := func(b *Batch) { b.Tag(1); b.AddElement(s.Ref, allowed("192.0.2.128/25")) }
		if _, err := w.commit(inner); err != nil {
			w.refused(unix.EEXIST, []int{1}, inner)
		}
		if got := w.elements("ranges"); len(got) != 1 {
			w.Fatal(got)
		}
		w.must(func(b *Batch) { b.AddElement(s.Ref, allowed("192.0.0.0/16")) })
		if got := w.elements("ranges"); len(got) != 2 {
			w.Fatal(got)
		}
		w.must(func(b *Batch) { b.DelElement(s.Ref, allowed("192.0.2.0/24")) })
	}},
	{"prefixes", func(w *world) {
		s := SetSpec{Ref: w.table.Set("prefixes"), Key: []Part{Addr4}, Flags: SetInterval}
		for i, p := range []string{"10.0.0.0/8", "255.0.0.0/8", "0.0.0.0/0"} {
			w.must(func(b *Batch) {
				b.NewSet(s)
				for _, e := range PrefixElements(netip.MustParsePrefix(p)) {
					b.AddElement(s.Ref, &e)
				}
			})
			if got := w.elements("prefixes"); len(got) != []int{2, 1, 1}[i] {
				w.Fatal(p, got)
			}
			w.must(func(b *Batch) {
				for _, e := range PrefixElements(netip.MustParsePrefix(p)) {
					b.DelElement(s.Ref, &e)
				}
			})
		}
	}},
}

// firstOperations commits batches that start with each kind: the kernel reports our generation through the first message.
func firstOperations(w *world) {
	spare := TableRef{IPv4, "spare"}
	chain, set := w.table.Chain("fresh"), SetSpec{Ref: w.table.Set("fresh"), Key: []Part{Addr4}}
	el := &Element{Key: []byte{10, 0, 0, 1}}
	for i, op := range []func(*Batch){
		func(b *Batch) { b.NewTable(spare, nil) },
		func(b *Batch) { b.DelTable(spare) },
		func(b *Batch) { b.NewChain(ChainSpec{Ref: chain}) },
		func(b *Batch) { b.NewRule(RuleSpec{Chain: chain, Exprs: verdict(Accept())}) },
		func(b *Batch) { b.FlushChain(chain) },
		func(b *Batch) { b.DelChain(chain) },
		func(b *Batch) { b.NewSet(set) },
		func(b *Batch) { b.AddElement(set.Ref, el) },
		func(b *Batch) { b.DelElement(set.Ref, el) },
		func(b *Batch) { b.AddElement(set.Ref, el) },
		func(b *Batch) { b.FlushSet(set.Ref) },
		func(b *Batch) { b.DelSet(set.Ref) },
	} {
		before, err1 := w.k.Generation(context.Background())
		got := w.must(op)
		now, err2 := w.k.Generation(context.Background())
		if err := errors.Join(err1, err2); err != nil || got != before.Next() || now != got {
			w.Errorf("operation %d: %d to %d, told %d, %v", i, before, now, got, err)
		}
	}
}

func ExampleBatchError() {
	err := &BatchError{Errno: unix.EEXIST, Tags: []int{4}, Errors: []OpError{{Errno: unix.EEXIST, Kind: OpAddElement, Tags: []int{4}}}}
	fmt.Println(err)
	// Output: commit nftables batch: the kernel rejected 1 operations; add element tags [4]: file exists
}
