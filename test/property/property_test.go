package property

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/test/patience"
	"github.com/fairlead/fairlead/test/proof"
)

// TestRandomHistoriesOnTheModel runs many histories in virtual time.
func TestRandomHistoriesOnTheModel(t *testing.T) {
	histories := uint64(60)
	if testing.Short() {
		histories = 20
	}
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) {
			settle := func(*agent) {
				time.Sleep(10 * time.Second) // virtual time: backoffs take no real time
				synctest.Wait()
			}
			kernel := nft.NewFake()
			history(t, seed, place{kernel, foreignHandle(kernel)}, nft.NewFake(), settle)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	proof.Count(t, int(histories), "random histories on a model of nf_tables")
}

// TestRandomHistoriesOnTheKernel runs a few histories on the real kernel.
func TestRandomHistoriesOnTheKernel(t *testing.T) {
	histories := uint64(6)
	if testing.Short() {
		histories = 3
	}
	for seed := range histories {
		done := make(chan struct{})
		go func() { // on its own thread, which ends with its namespaces
			defer close(done)
			runtime.LockOSThread()
			settle := func(a *agent) {
				deadline := time.Now().Add(patience.Of(5 * time.Second))
				for quiet := 0; quiet < 20 && time.Now().Before(deadline); quiet++ {
					time.Sleep(10 * time.Millisecond) // no change for 200 ms suggests that all is in sync; the callers verify it
					if !a.good.Load() || a.mail.Len() > 0 {
						quiet = 0
					}
				}
			}
			scratch := openInNewNamespace(t)
			kernel := openInNewNamespace(t)
			history(t, 1000+seed, place{kernel, open(t)}, scratch, settle)
		}()
		<-done
		if t.Failed() {
			t.Fatalf("seed %d", 1000+seed)
		}
	}
	proof.Count(t, int(histories), "random histories on this kernel")
}

func openInNewNamespace(t *testing.T) nft.Kernel {
	netnstest.Enter(t)
	return open(t)
}

func open(t *testing.T) nft.Kernel {
	k, err := nft.Open(nft.Config{})
	check(t, err)
	return k
}

// place is a kernel with two handles: the agent's, and another program's.
type place struct{ ours, theirs nft.Kernel }

// history runs one random history against kernel, then compares it with what an agent writes into scratch that receives only the final state.
func history(t *testing.T, seed uint64, kernel place, scratch nft.Kernel, settle func(*agent)) {
	r := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(r)
	var faults atomic.Bool
	faults.Store(seed%3 > 0)
	var poison, full atomic.Bool
	told := settings{primary: seed%4 > 0, cluster: seed%3 == 0, minSync: []time.Duration{0, 0, 30 * time.Millisecond}[seed%5%3], poison: &poison, full: &full, surveyor: kernel.theirs}
	under := faulty(kernel.ours, rand.New(rand.NewPCG(seed, 8)), &faults)
	a := startAgent(t, under, told)
	a.put(w.all()...)
	for range 40 {
		switch r.IntN(15) {
		case 14: // a set is full
			full.Store(true)
			a.put(w.change())
		case 12: // the kernel rejects a Service from now on, or no longer
			poison.Store(!poison.Load())
			w.services[keys-1] = w.randomService(keys - 1)
			a.put(w.serviceEvent(keys - 1))
		case 13: // the source disconnects and lists again
			for range 1 + r.IntN(4) {
				w.change()
			}
			a.put(w.again()...)
		case 0:
			a.stop()
			for range r.IntN(4) { // while no agent runs
				w.change()
			}
			a = startAgent(t, under, told)
			a.put(w.all()...)
		case 1:
			if seed%2 == 0 {
				settle(a) // so that some edits happen while the agent is in sync
			}
			vandal(t, kernel.theirs, r)
		case 2: // failing commits delay a change, but not for long
			a.put(w.change())
			for range looks { // rejected objects are retried, and a retry may fail just before the check
				if settle(a); a.good.Load() {
					break
				}
			}
			if !a.good.Load() {
				t.Errorf("seed %d: a change did not get into the kernel while a tenth of the commits fail: %v, %d events wait", seed, a.last.Load(), a.mail.Len())
			}
		default:
			for range 1 + r.IntN(3) {
				a.put(w.change())
			}
		}
	}
	faults.Store(false)
	full.Store(false)
	if poison.Swap(false) { // a change of a rejected Service makes the agent retry it
		w.services[keys-1] = w.randomService(keys - 1)
		a.put(w.serviceEvent(keys - 1))
	}
	told.surveyor = scratch
	b := startAgent(t, scratch, told)
	losesItsNode(w, a, b, settle)
	var got, want []string
	agree := func() bool {
		got, want = snapshot(t, kernel.theirs), snapshot(t, scratch)
		return a.held.Load() == 0 && len(want) >= 20 && slices.Equal(got, want)
	}
	for range looks { // quiet does not prove that all events were handled, and a backoff may be long
		settle(a)
		if settle(b); agree() {
			break
		}
	}
	for _, x := range []*agent{a, b} {
		x.end(t)
	}
	if !agree() {
		t.Errorf("seed %d: %d Services in quarantine; kernel after the history against from scratch (%d lines):\n%s",
			seed, a.held.Load(), len(want), difference(got, want))
	}
}

// losesItsNode sends the Node to both agents, and everything else to b, and then removes the Node from a, which must keep using its data.
func losesItsNode(w *world, a, b *agent, settle func(*agent)) {
	w.node = w.randomNode()
	a.put(w.nodeEvent())
	b.put(w.all()...)
	for range looks {
		if settle(a); a.good.Load() && a.mail.Len() == 0 {
			break
		}
	}
	w.loseNode()
	a.put(w.nodeEvent())
}

// looks is the number of polls before a history counts as failed.
const looks = 60
