package nft

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// The numbers of foreign objects that are added and deleted before the owned ones: the longer the list, the longer the kernel takes to
// remove them. The owned objects fill more than one datagram.
const strangers, ourOwn = 2000, 400

// besideCase is a kind of objects, of which the kernel keeps owned and foreign ones in one list.
type besideCase struct {
	name      string
	ours      func(b *Batch)        // adds the owned objects at the end of the list; they always exist
	add, drop func(b *Batch, i int) // of one foreign object
	count     func(ctx context.Context, k *Conn) (int, error)
}

func besideCases(t TableRef) []besideCase {
	return []besideCase{rulesBeside(t), chainsBeside(t), setsBeside(t), elementsBeside(t.Set("members"))}
}

func elementsBeside(s SetRef) besideCase {
	const first = 20_000 // index of the first owned object
	member := func(i int) *Element { return &Element{Key: []byte{10, 0, byte(i >> 8), byte(i)}} }
	return besideCase{
		name: "elements",
		ours: func(b *Batch) {
			b.NewSet(SetSpec{Ref: s, Key: []Part{Addr4}, Size: 1 << 16})
			for i := range ourOwn {
				b.AddElement(s, member(first+i))
			}
		},
		add:  func(b *Batch, i int) { b.AddElement(s, member(i)) },
		drop: func(b *Batch, i int) { b.DelElement(s, member(i)) },
		count: func(ctx context.Context, k *Conn) (n int, err error) {
			err = k.Elements(ctx, s, func(e *Element) error {
				if int(e.Key[2])<<8|int(e.Key[3]) >= first {
					n++
				}
				return nil
			})
			return n, err
		},
	}
}

// named returns the number of distinct names of owned objects: a list may contain one twice.
func named[T any](list []T, err error, name func(*T) string) (int, error) {
	seen := map[string]bool{}
	for i := range list {
		if n := name(&list[i]); n[:4] == "ours" {
			seen[n] = true
		}
	}
	return len(seen), err
}

func rulesBeside(t TableRef) besideCase {
	theirs, ours := t.Chain("theirs"), t.Chain("ours")
	return besideCase{
		name: "rules",
		ours: func(b *Batch) {
			b.NewChain(ChainSpec{Ref: theirs})
			b.NewChain(ChainSpec{Ref: ours})
			b.FlushChain(ours)
			for range ourOwn {
				b.NewRule(RuleSpec{Chain: ours, Exprs: Does(Accept())})
			}
		},
		add: func(b *Batch, _ int) { b.NewRule(RuleSpec{Chain: theirs, Exprs: Does(Accept())}) },
		drop: func(b *Batch, i int) {
			if i == 0 {
				b.FlushChain(theirs)
			}
		},
		count: func(ctx context.Context, k *Conn) (n int, err error) {
			list, err := k.Rules(ctx, t)
			for i := range list {
				if list[i].Chain == ours {
					n++
				}
			}
			return n, err
		},
	}
}

func chainsBeside(t TableRef) besideCase {
	return besideCase{
		name: "chains",
		ours: func(b *Batch) {
			for i := range ourOwn {
				b.NewChain(ChainSpec{Ref: t.Chain(fmt.Sprint("ours-", i))}) // there may be one, then nothing happens
				b.DelChain(t.Chain(fmt.Sprint("ours-", i)))
				b.NewChain(ChainSpec{Ref: t.Chain(fmt.Sprint("ours-", i))})
			}
		},
		add:  func(b *Batch, i int) { b.NewChain(ChainSpec{Ref: t.Chain(fmt.Sprint("theirs-", i))}) },
		drop: func(b *Batch, i int) { b.DelChain(t.Chain(fmt.Sprint("theirs-", i))) },
		count: func(ctx context.Context, k *Conn) (int, error) {
			list, err := k.Chains(ctx, t)
			return named(list, err, func(c *Chain) string { return c.Ref.Name })
		},
	}
}

func setsBeside(t TableRef) besideCase {
	spec := func(name string) SetSpec { return SetSpec{Ref: t.Set(name), Key: []Part{Addr4}, Size: 8} }
	return besideCase{
		name: "sets",
		ours: func(b *Batch) {
			for i := range ourOwn {
				b.NewSet(spec(fmt.Sprint("ours-", i)))
				b.DelSet(t.Set(fmt.Sprint("ours-", i)))
				b.NewSet(spec(fmt.Sprint("ours-", i)))
			}
		},
		add:  func(b *Batch, i int) { b.NewSet(spec(fmt.Sprint("theirs-", i))) },
		drop: func(b *Batch, i int) { b.DelSet(t.Set(fmt.Sprint("theirs-", i))) },
		count: func(ctx context.Context, k *Conn) (int, error) {
			list, err := k.Sets(ctx, t)
			return named(list, err, func(s *Set) string { return s.Ref.Name })
		},
	}
}

// TestReadBesideACommit: a list is complete if the generation is equal before and after it, also while the commit of that
// generation, by another program, is still removing the objects that it deletes.
func TestReadBesideACommit(t *testing.T) {
	table := TableRef{IPv4, "fairlead"}
	for _, c := range besideCases(table) {
		t.Run(c.name, func(t *testing.T) {
			netnstest.Enter(t)
			k, stranger := another(t), another(t)
			write := func(f func(*Batch)) error {
				b := &Batch{}
				f(b)
				_, err := stranger.Commit(t.Context(), b)
				return err
			}
			add := func(b *Batch) {
				for i := range strangers {
					c.add(b, i)
				}
				c.ours(b)
			}
			drop := func(b *Batch) {
				for i := range strangers {
					c.drop(b, i)
				}
			}
			if err := errors.Join(write(func(b *Batch) { b.NewTable(table, nil); c.ours(b) }), write(add)); err != nil {
				t.Fatal(err)
			}
			seen, over := make(chan struct{}), make(chan error, 1)
			go func() {
				over <- alternate(20, seen, func() error { return errors.Join(write(drop), write(add)) })
			}()
			readBeside(t, k, &c, seen, over)
		})
	}
}

// alternate writes several times without a pause. Then it pauses for longer and longer until one read was undisturbed:
// the duration of a read during a write depends on the machine.
func alternate(times int, seen <-chan struct{}, write func() error) error {
	for range times {
		if err := write(); err != nil {
			return err
		}
	}
	for pause := time.Millisecond; pause < time.Minute; pause *= 2 {
		select {
		case <-seen:
			return nil
		case <-time.After(pause):
		}
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

// readBeside reads as a Load does, until the other one is done.
func readBeside(t *testing.T, k *Conn, c *besideCase, seen chan<- struct{}, over <-chan error) {
	ctx, readings, whole, partial := t.Context(), 0, 0, 0
	for {
		select {
		case err := <-over:
			t.Logf("of %d readings %d were not disturbed, and %d of these were partial", readings, whole, partial)
			if err != nil || whole == 0 || partial > 0 {
				t.Error("some reading must be undisturbed, and none of these partial: ", err)
			}
			return
		default:
		}
		readings++
		before, err1 := k.Generation(ctx)
		_, err2 := k.Tables(ctx)
		n, err3 := c.count(ctx, k)
		after, err4 := k.Generation(ctx)
		err := errors.Join(err1, err2, err3, err4)
		if err != nil && !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		if err == nil && before == after {
			if whole++; whole == 1 {
				close(seen)
			}
			if n != ourOwn {
				partial++
			}
		}
	}
}

// TestRulesOfOneChain: the first read waits for a commit in progress, the next ones only after another commit.
func TestRulesOfOneChain(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	k, chain := w.k.(*Conn), w.table.Chain("one-rule")
	write := func() {
		b := &Batch{}
		b.NewTable(w.table, nil)
		b.NewChain(ChainSpec{Ref: chain})
		b.NewRule(RuleSpec{Chain: chain, Exprs: Does(Accept())})
		if _, err := k.Commit(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	for rules, questions := range []int{3, 4, 4} { // a generation, to wait, the dump; and a dump before that
		write()
		for _, questions := range []int{questions, 1} {
			commands.Plan(nil, nil)
			list, err := k.ChainRules(t.Context(), chain)
			if _, sent, _ := commands.Calls(); err != nil || len(list) != rules+1 || sent != questions {
				t.Errorf("%d rules of %d after %d questions, not %d: %v", len(list), rules+1, sent, questions, err)
			}
		}
	}
}
