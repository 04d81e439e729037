package nft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listener runs a Watch of k and records its notifications.
type listener struct {
	testing.TB
	heard chan Move
	ended chan error
	stop  context.CancelFunc
	deaf  sync.Mutex
}

// pause waits for as long as a test holds the listener deaf.
func (l *listener) pause() {
	l.deaf.Lock()
	defer l.deaf.Unlock()
}

// listen returns once the subscription exists, with the generation from which on everything is reported.
func listen(t testing.TB, k Kernel) (*listener, Generation) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{TB: t, heard: make(chan Move, 1<<16), ended: make(chan error, 1), stop: stop}
	go func() {
		l.ended <- k.Watch(ctx, func(m Move) {
			m.Tables = slices.Clone(m.Tables)
			l.heard <- m
			l.pause() // a test may stop the listener here
		})
	}()
	t.Cleanup(stop)
	first := l.next()
	if !first.Lost {
		t.Fatalf("the first move is %+v", first)
	}
	return l, first.Generation
}

func (l *listener) next() Move {
	l.Helper()
	select {
	case m := <-l.heard:
		return m
	case err := <-l.ended:
		l.Fatalf("watch ended: %v", err)
	case <-time.After(time.Minute):
		l.Fatal("no news within a minute")
	}
	return Move{}
}

// want wants the next move to be this one, with the tables in any order.
func (l *listener) want(g Generation, tables ...TableRef) {
	l.Helper()
	m := l.next()
	order := func(a, b TableRef) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(m.Tables, order)
	slices.SortFunc(tables, order)
	if m.Generation != g || m.Lost || !slices.Equal(m.Tables, tables) {
		l.Fatalf("heard %+v, want generation %d with %v", m, g, tables)
	}
}

// end stops the watch; the test must have consumed all notifications.
func (l *listener) end() {
	l.Helper()
	l.stop()
	if err := <-l.ended; !errors.Is(err, context.Canceled) || len(l.heard) > 0 {
		l.Fatalf("ended with %v, %d moves unheard", err, len(l.heard))
	}
}

// neighbour commits as another program.
func (w *world) neighbour(build func(*Batch)) Generation {
	w.Helper()
	b := &Batch{}
	build(b)
	g, err := w.other.Commit(context.Background(), b)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

var watchCases = []behaviour{
	{"watch begins at the current generation", func(w *world) {
		now, err := w.k.Generation(context.Background())
		l, from := listen(w, w.k)
		if from != now || err != nil {
			w.Errorf("subscribed at %d, now %d, %v", from, now, err)
		}
		l.end()
	}},
	{"watch is silent about our own commits", func(w *world) {
		l, _ := listen(w, w.k)
		firstOperations(w)
		six := TableRef{IPv6, "six"}
		l.want(w.neighbour(func(b *Batch) { b.NewTable(six, nil) }), six)
		firstOperations(w)
		l.want(w.neighbour(func(b *Batch) { b.DelTable(six) }), six)
		l.end()
	}},
	{"watch names the table of each operation", func(w *world) {
		l, _ := listen(w, w.k)
		set, chain := SetSpec{Ref: spare.Set("s"), Key: []Part{Addr4}}, spare.Chain("c")
		el := &Element{Key: []byte{10, 0, 0, 1}}
		for _, op := range []func(*Batch){
			func(b *Batch) { b.NewTable(spare, nil) },
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
			func(b *Batch) { b.DelTable(spare) },
		} {
			l.want(w.neighbour(op), spare)
		}
		l.end()
	}},
	{"watch names all tables of a commit", func(w *world) {
		l, _ := listen(w, w.k)
		l.want(w.neighbour(func(b *Batch) {
			b.NewTable(spare, nil)
			w.add(b, 0, 0, "10.0.0.1")
			b.NewTable(TableRef{IPv6, "world"}, nil)
		}), spare, w.table, TableRef{IPv6, "world"})
		l.want(w.neighbour(func(b *Batch) { b.DelTable(w.table) }), w.table)
		l.end()
	}},
}

var spare = TableRef{IPv4, "spare"}

// TestWatchKeepsCommitsApart: two concurrent writers, with commits of one message and of thousands; every foreign commit is
// reported separately and with its own table only, and no own commit is. So datagrams never mix commits.
func TestWatchKeepsCommitsApart(t *testing.T) {
	k := ownNetns(t)
	w := newWorld(t, k, another(t))
	w.neighbour(func(b *Batch) {
		b.NewTable(spare, nil)
		b.NewSet(SetSpec{Ref: spare.Set("s"), Key: []Part{Addr4}})
	})
	l, from := listen(t, k)
	const rounds = 300
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rounds {
			w.flip(k, w.table.Set("unused"), i)
		}
	})
	for i := range rounds {
		w.flip(w.other, spare.Set("s"), i)
	}
	wg.Wait()
	for range 2 * rounds {
		m := l.next()
		if m.Lost || !m.Generation.After(from) || len(m.Tables) != 1 || m.Tables[0] != spare {
			t.Fatalf("after generation %d: %+v", from, m)
		}
		from = m.Generation
	}
	l.end()
}

// flip adds elements and deletes them; each 50th round it is 5000 of them.
func (w *world) flip(k Kernel, set SetRef, round int) {
	n := 1
	if round%50 == 0 {
		n = 5000
	}
	for _, op := range []func(*Batch, *Element){
		func(b *Batch, e *Element) { b.AddElement(set, e) },
		func(b *Batch, e *Element) { b.DelElement(set, e) },
	} {
		b := &Batch{}
		for i := range n {
			op(b, &Element{Key: []byte{10, 0, byte(i >> 8), byte(i)}})
		}
		if _, err := k.Commit(context.Background(), b); err != nil {
			w.Error(err)
		}
	}
}

// TestWatchSaysWhatItLost: a buffer too small for a commit. The loss is reported, with a generation that covers the commit of
// which a part may have arrived; afterwards everything is reported again.
func TestWatchSaysWhatItLost(t *testing.T) {
	k := ownNetns(t)
	err := k.events.SetReceiveBuffer(16 << 10)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, k, another(t))
	l, _ := listen(t, k)
	l.deaf.Lock()
	l.want(w.neighbour(func(b *Batch) { b.NewTable(TableRef{IPv6, "six"}, nil) }), TableRef{IPv6, "six"})
	big := w.neighbour(func(b *Batch) {
		b.NewTable(spare, nil)
		b.NewSet(SetSpec{Ref: spare.Set("s"), Key: []Part{Addr4}})
		for i := range 20_000 {
			b.AddElement(spare.Set("s"), &Element{Key: []byte{10, 0, byte(i >> 8), byte(i)}})
		}
		w.add(b, 0, 0, "10.0.0.1")
	})
	l.deaf.Unlock()
	if m := l.next(); !m.Lost || big.After(m.Generation) {
		t.Fatalf("heard %+v of a loss at generation %d", m, big)
	}
	l.want(w.neighbour(func(b *Batch) { b.DelTable(spare) }), spare)
	l.end()
}

// TestWatchAfterItsSocketFailed: the next Watch has another socket, in the same namespace, whatever thread it is called on
// (listen's has left this test's namespace alone), begins with a Lost that covers what happened in between, and our own commits
// are still silent. After Close there is none.
func TestWatchAfterItsSocketFailed(t *testing.T) {
	k := ownNetns(t)
	w := newWorld(t, k, another(t))
	six := TableRef{IPv6, "six"}
	for range 2 {
		l, _ := listen(t, k)
		if err := k.events.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-l.ended; err == nil {
			t.Fatal("a watch ended without an error when its socket was closed")
		}
		missed := w.neighbour(func(b *Batch) { b.NewTable(six, nil) })
		l, from := listen(t, k)
		if missed.After(from) {
			t.Fatalf("begins again at generation %d, after generation %d was missed", from, missed)
		}
		firstOperations(w)
		l.want(w.neighbour(func(b *Batch) { b.DelTable(six) }), six)
		l.end()
	}
	l, _ := listen(t, k)
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-l.ended; err == nil {
		t.Fatal("a watch outlived Close")
	}
	if err := k.Watch(t.Context(), func(Move) {}); err == nil {
		t.Fatal("a closed Conn watches")
	}
}

// TestWatchNamesFlowtables where the kernel has them.
func TestWatchNamesFlowtables(t *testing.T) {
	w := newWorld(t, ownNetns(t), another(t))
	l, _ := listen(t, w.k)
	l.want(w.neighbour(func(b *Batch) { b.NewTable(spare, nil) }), spare)
	b := &Batch{}
	b.NewFlowtable(Flowtable{Ref: spare.Set("f")})
	g, err := w.other.Commit(context.Background(), b)
	if err != nil {
		t.Skipf("needs a kernel with flowtables: %v", err) // test/vm/tests.txt has it run under one that does
	}
	l.want(g, spare)
	l.want(w.neighbour(func(b *Batch) { b.DelFlowtable(spare.Set("f")) }), spare)
	l.end()
}

// TestForeignWriterIsSeen uses the nft command: Watch hears it and the next compare-and-commit refuses.
func TestForeignWriterIsSeen(t *testing.T) {
	k := ownNetns(t)
	w := newWorld(t, k, another(t))
	l, ours := listen(t, k)
	nftTool(t, "", "add", "element", "ip", "world", "unused", "{ 10.0.0.1 }")
	l.want(ours.Next(), w.table)
	nftTool(t, "", "add", "table", "inet", "theirs")
	l.want(ours.Next().Next(), TableRef{Inet, "theirs"})
	if _, err := w.commit(func(b *Batch) { b.Expect = ours; w.add(b, 0, 0, "10.0.0.1") }); !errors.Is(err, ErrGeneration) {
		t.Error(err)
	}
	nftTool(t, "", "flush", "ruleset")
	l.want(ours.Next().Next().Next(), w.table, TableRef{Inet, "theirs"})
	l.end()
}

// BenchmarkForeignFlood measures the cost of another program's commit of 100 000 elements to a watcher, next to its cost to the writer.
func BenchmarkForeignFlood(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprintf("watched=%v", watched), func(b *testing.B) { flood(b, watched) })
	}
}

func flood(b *testing.B, watched bool) {
	k, other, ctx := ownNetns(b), another(b), context.Background()
	batch := &Batch{}
	batch.NewTable(spare, nil)
	if _, err := other.Commit(ctx, batch); err != nil {
		b.Fatal(err)
	}
	var l *listener
	if watched {
		l, _ = listen(b, k)
	}
	start := threadTimes(b)
	for b.Loop() {
		batch.Reset()
		fullBuild(batch, TableRef{IPv4, "theirs"}, many)
		if _, err := other.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
		batch.Reset()
		batch.DelTable(TableRef{IPv4, "theirs"})
		g, err := other.Commit(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		for watched && l.next().Generation != g {
		}
	}
	end := threadTimes(b)
	b.ReportMetric(float64((end.all-start.all).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	b.ReportMetric(float64((end.mine-start.mine).Microseconds())/float64(b.N)/1000, "writer-cpu-ms/op")
}

type cpuTimes struct{ all, mine time.Duration }

// threadTimes is the CPU time of the process and of the calling thread, to which ownNetns has locked the goroutine.
func threadTimes(t testing.TB) cpuTimes {
	t.Helper()
	var all, mine unix.Rusage
	if err := errors.Join(unix.Getrusage(unix.RUSAGE_SELF, &all), unix.Getrusage(unix.RUSAGE_THREAD, &mine)); err != nil {
		t.Fatal(err)
	}
	sum := func(u unix.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
	return cpuTimes{sum(all), sum(mine)}
}
