package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// onFaultySockets opens a Conn whose sockets fail as planned, in a namespace of the test's own, and a world in it.
func onFaultySockets(t *testing.T) (w *world, commands, events *netlink.Faults) {
	t.Helper()
	other := ownNetns(t)
	commands, events = &netlink.Faults{}, &netlink.Faults{}
	k, err := Open(Config{WrapCommands: commands.Wrap, WrapEvents: events.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	w = newWorld(t, k, other)
	w.must(func(b *Batch) { // several datagrams, of a size at which the kernel does not resize its table during the dump
		b.NewSet(SetSpec{Ref: w.table.Set("many"), Key: []Part{Addr4}, Size: 8192})
		for i := range 2000 {
			b.AddElement(w.table.Set("many"), &Element{Key: []byte{10, 0, byte(i >> 8), byte(i)}})
		}
	})
	return w, commands, events
}

// calls are all questions that a data plane asks.
var calls = map[string]func(w *world) error{
	"Generation": func(w *world) error { _, err := w.k.Generation(context.Background()); return err },
	"Tables":     func(w *world) error { _, err := w.k.Tables(context.Background()); return err },
	"Sets":       func(w *world) error { _, err := w.k.Sets(context.Background(), w.table); return err },
	"Chains":     func(w *world) error { _, err := w.k.Chains(context.Background(), w.table); return err },
	"Rules":      func(w *world) error { _, err := w.k.Rules(context.Background(), w.table); return err },
	"Elements": func(w *world) error {
		return w.k.Elements(context.Background(), w.table.Set("many"), func(*Element) error { return nil })
	},
	"Commit": func(w *world) error {
		_, err := w.commit(func(b *Batch) { w.add(b, 0, 5, "10.0.0.1"); w.del(b, 0, 5) })
		return err
	},
	"Commit of nothing": func(w *world) error {
		_, err := w.commit(func(b *Batch) { b.NewTable(w.table, nil) })
		return err
	},
	"Commit refused": func(w *world) error {
		_, err := w.commit(func(b *Batch) { b.DelChain(w.table.Chain("absent")); b.DelChain(w.table.Chain("none")) })
		if err == nil {
			w.Error("a commit that the kernel refuses went well")
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	},
}

// rows is the state without the generation.
func (w *world) rows() string {
	w.Helper()
	_, rows, _ := strings.Cut(w.state(), "\n")
	return rows
}

// generations are what this Kernel and its neighbour read.
func (w *world) sameGeneration(after string) {
	w.Helper()
	for range 3 {
		got, err1 := w.k.Generation(context.Background())
		want, err2 := w.other.Generation(context.Background())
		if err := errors.Join(err1, err2); err != nil || got != want {
			w.Fatalf("after %s: generation %d, want %d: %v", after, got, want, err)
		}
	}
}

// TestAFaultCostsOneCall: whatever happens to whichever datagram of a call, that call ends, and the next ones are as if
// nothing had been. (A dump that was broken off once left its rest in the socket; from then on each question read the answer
// of the one before.)
func TestAFaultCostsOneCall(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	want := w.rows()
	for name, call := range calls {
		for _, fault := range netlink.EveryFault() {
			failed := 0
			for at := range 8 {
				once := func(n int) netlink.Fault {
					if n == at/2 {
						return fault
					}
					return netlink.None
				}
				if at%2 == 0 {
					commands.Plan(once, nil)
				} else {
					commands.Plan(nil, once)
				}
				err := call(w)
				if err != nil {
					failed++
				}
				if _, sent, received := commands.Calls(); sent > 10 || received > 1000 {
					t.Errorf("%s, %s at %d: sent %d times, received %d times", name, fault, at, sent, received)
				}
				commands.Plan(nil, nil)
				w.sameGeneration(fmt.Sprintf("%s with %s at %d, which said %v", name, fault, at, err))
			}
			if failed == 0 && fault != netlink.Interrupted && name != "Commit refused" {
				t.Errorf("%s never notices the fault %q", name, fault)
			}
			if got := w.rows(); got != want {
				t.Fatalf("after %s with %s the kernel is read as %.2000s\nwant %.2000s", name, fault, got, want)
			}
		}
	}
}

// TestASocketThatNeverRecovers: calls end, none hangs, and once the sockets work again so do the calls.
func TestASocketThatNeverRecovers(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	for name, call := range calls {
		for _, fault := range netlink.EveryFault() {
			always := func(int) netlink.Fault { return fault }
			for _, plan := range [][2]func(int) netlink.Fault{{always, nil}, {nil, always}, {always, always}} {
				commands.Plan(plan[0], plan[1])
				for range 2 {
					err := call(w)
					if err == nil && plan[1] != nil && fault != netlink.Unanswered {
						t.Errorf("%s went well with %s for ever", name, fault)
					}
				}
				if _, sent, received := commands.Calls(); sent+received > 2000 {
					t.Errorf("%s with %s for ever: sent %d times, received %d times", name, fault, sent, received)
				}
				commands.Plan(nil, nil)
				w.sameGeneration(fmt.Sprintf("%s with %s for ever", name, fault))
			}
		}
	}
}

// TestRandomFaults: commits among faults. What a commit says of itself is true: done, not done, or unknown.
func TestRandomFaults(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	r := rand.New(rand.NewPCG(7, 7))
	random := func(int) netlink.Fault {
		if r.IntN(8) > 0 {
			return netlink.None
		}
		return netlink.EveryFault()[r.IntN(len(netlink.EveryFault()))]
	}
	set, wrote, failed := w.table.Set("many"), 0, 0
	for i := range 400 {
		e := &Element{Key: []byte{10, 9, byte(i >> 8), byte(i)}}
		commands.Plan(random, random)
		_, err := w.commit(func(b *Batch) { b.AddElement(set, e) })
		commands.Plan(nil, nil)
		there := w.has(set, e.Key)
		switch {
		case err == nil:
			wrote++
		case there: // done, and it could not be said
			failed++
		}
		if err == nil && !there {
			t.Fatalf("commit %d said that it was done", i)
		}
	}
	if wrote < 200 || failed < 10 {
		t.Errorf("%d commits known as done, %d done unknown", wrote, failed)
	}
}

// has asks the neighbour whether an element is there.
func (w *world) has(set SetRef, key []byte) (there bool) {
	w.Helper()
	err := w.other.Elements(context.Background(), set, func(e *Element) error {
		there = there || bytes.Equal(e.Key, key)
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return there
}

// TestWatchHeals: a fault of notifications ends the Watch or is reported as a loss; a restarted Watch reports everything. (None of the
// faults loses a notification without an error: the kernel reports each loss. Only answers are lost so.)
func TestWatchHeals(t *testing.T) {
	w, _, events := onFaultySockets(t)
	for _, fault := range netlink.EveryFault() {
		silent := fault == netlink.Lost || fault == netlink.Delayed
		for at := range 8 {
			once := func(n int) netlink.Fault {
				if n == at/2 && (n < 2 || !silent) { // the second call gets the first answer
					return fault
				}
				return netlink.None
			}
			if at%2 == 0 {
				events.Plan(once, nil)
			} else {
				events.Plan(nil, once)
			}
			w.watched(fmt.Sprintf("%s at %d", fault, at))
		}
		always := func(int) netlink.Fault { return fault }
		events.Plan(always, always)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		err := w.k.Watch(ctx, func(Move) {})
		if stop(); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with %s for ever: %v", fault, err)
		}
		if _, sent, received := events.Calls(); sent+received > 1000 {
			t.Errorf("with %s for ever: sent %d times, received %d times", fault, sent, received)
		}
	}
}

// watched runs Watch, again if it ends, and commits as a neighbour until the last commit is heard of or covered by a loss.
func (w *world) watched(what string) {
	w.Helper()
	ctx, stop := context.WithTimeout(w.Context(), time.Minute)
	defer stop()
	heard, begun := make(chan Generation, 1000), make(chan struct{}, 100)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range 20 {
			first := true
			_ = w.k.Watch(ctx, func(m Move) {
				heard <- m.Generation
				if first {
					begun <- struct{}{}
				}
				first = false
			})
			if ctx.Err() != nil {
				return
			}
		}
	})
	defer watching.Wait()
	defer stop()
	select {
	case <-begun:
	case <-ctx.Done():
		w.Fatalf("%s: Watch never begins", what)
	}
	var last Generation
	for range 6 {
		last = w.neighbour(func(b *Batch) { w.add(b, 0, 6, "10.0.0.1"); w.del(b, 0, 6) })
	}
	for {
		select {
		case g := <-heard:
			if !last.After(g) {
				return
			}
		case <-ctx.Done():
			w.Fatalf("%s: generation %d is never told", what, last)
		}
	}
}

// TestOwnCommitsStaySilentOnAnotherSocket: the socket that replaces a failed one has another port, and Watch knows it.
func TestOwnCommitsStaySilentOnAnotherSocket(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	l, _ := listen(t, w.k)
	six := TableRef{IPv6, "six"}
	for range 3 {
		commands.Plan(nil, func(int) netlink.Fault { return netlink.Broken })
		if _, err := w.k.Generation(t.Context()); err == nil {
			t.Fatal("no error from a broken socket")
		}
		commands.Plan(nil, nil)
		firstOperations(w)
		l.want(w.neighbour(func(b *Batch) { b.NewTable(six, nil) }), six)
		firstOperations(w)
		l.want(w.neighbour(func(b *Batch) { b.DelTable(six) }), six)
	}
	l.end()
	if opened, _, _ := commands.Calls(); opened != 4 {
		t.Errorf("%d sockets, want 4", opened)
	}
	listenAgain, _ := listen(t, w.k) // a new Watch on the old socket for events knows the newest port
	firstOperations(w)
	listenAgain.end()
}

// TestALateAnswerIsSkipped: a late answer to an earlier request is not taken for the next one.
func TestALateAnswerIsSkipped(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	c := w.k.(*Conn)
	for range 3 {
		first := c.cmd.Reserve(2)
		b := appendQuestion(appendQuestion(nil, unix.NFT_MSG_GETGEN, 0, nil), unix.NFT_MSG_GETGEN, 0, nil)
		numberMsgs(b, first)
		if err := c.cmd.Ask(netlink.Question{First: first, Last: first + 1, Data: [][]byte{b}}, func(netlink.Message) bool { return true }); err != nil {
			t.Fatal(err)
		}
		w.neighbour(func(b *Batch) { w.add(b, 0, 6, "10.0.0.1"); w.del(b, 0, 6) })
		w.sameGeneration("an answer that was not read")
	}
	if opened, _, _ := commands.Calls(); opened != 1 {
		t.Errorf("%d sockets, want 1", opened)
	}
}

// TestSocketsAreNotLeaked: each one that is replaced is closed, and a closed Conn opens no more.
func TestSocketsAreNotLeaked(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	for range 50 {
		commands.Plan(nil, func(int) netlink.Fault { return netlink.Broken })
		_, _ = w.k.Generation(t.Context())
		commands.Plan(nil, nil)
		w.sameGeneration("a broken socket")
	}
	if after := open(); after > before+10 {
		t.Errorf("%d descriptors open, %d before", after, before)
	}
	commands.Plan(nil, func(int) netlink.Fault { return netlink.Broken })
	_, _ = w.k.Generation(t.Context())
	commands.Plan(nil, nil)
	if err := w.k.(*Conn).Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.k.Generation(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed Conn says %v", err)
	}
}

// TestDumpsThatTheKernelCallsInconsistent: short ones are retried, up to a bound; long ones return their rows and ErrInterrupted.
func TestDumpsThatTheKernelCallsInconsistent(t *testing.T) {
	w, commands, _ := onFaultySockets(t)
	first := func(times int) func(int) netlink.Fault {
		return func(n int) netlink.Fault {
			if n < times {
				return netlink.Inconsistent
			}
			return netlink.None
		}
	}
	want := w.rows()
	const datagrams, questions = 3, 3 // a generation, and one with all, and one more at its end; to wait is asked for besides
	for _, name := range []string{"Tables", "Chains"} {
		for times, fine := range map[int]bool{datagrams: true, datagrams * (quietTries - 1): true, datagrams * quietTries: false} {
			commands.Plan(nil, first(times))
			err := calls[name](w)
			if errors.Is(err, ErrInterrupted) == fine || fine && err != nil {
				t.Errorf("%s, %d datagrams called inconsistent: %v", name, times, err)
			}
			if _, sent, _ := commands.Calls(); sent != questions*min(times/datagrams+1, quietTries) {
				t.Errorf("%s was asked for %d times", name, sent)
			}
		}
	}
	for _, name := range []string{"Sets", "Rules", "Elements"} {
		commands.Plan(nil, first(1))
		if err := calls[name](w); !errors.Is(err, ErrInterrupted) {
			t.Errorf("%s: %v", name, err)
		}
		if _, sent, _ := commands.Calls(); sent != 1 {
			t.Errorf("%s was asked for %d times", name, sent)
		}
	}
	commands.Plan(nil, first(1))
	rows := 0
	err := w.k.Elements(t.Context(), w.table.Set("many"), func(*Element) error { rows++; return nil })
	if !errors.Is(err, ErrInterrupted) || rows != 2000 {
		t.Errorf("%d of 2000 elements, %v", rows, err)
	}
	commands.Plan(nil, nil)
	if got := w.rows(); got != want {
		t.Error("something changed")
	}
}
