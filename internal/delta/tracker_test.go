package delta

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var t0 = time.Unix(1, 0)

// Keys starting with "p" are pools of width 2, with "l" linger for a minute; "l" and "z" are shared.
func newTracker() *Tracker[string, string] {
	return New[string, string](Params[string]{
		Width: func(k string) int {
			if k[0] == 'p' {
				return 2
			}
			return 0
		},
		Rank: func(k string) uint8 { return k[0] },
		Linger: func(k string) time.Duration {
			if k[0] == 'l' {
				return time.Minute
			}
			return 0
		},
		Shared: func(k string) bool { return k[0] == 'l' || k[0] == 'z' },
		Sum:    func(k, value string) uint64 { return maphash.String(sumSeed, k+" "+value) },
	})
}

var sumSeed = maphash.MakeSeed()

func objects(kv ...string) (out []Object[string]) {
	for i := 0; i < len(kv); i += 2 {
		out = append(out, Object[string]{kv[i], kv[i+1]})
	}
	return out
}

func show(list []Diff[string]) (out []string) {
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s:%s>%s", d.Key, d.Have, d.Want))
	}
	return out
}

func expectPending(t *testing.T, tr *Tracker[string, string], want ...string) []Diff[string] {
	t.Helper()
	got := tr.Pending()
	if !slices.Equal(show(got), want) {
		t.Fatalf("pending %v, want %v", show(got), want)
	}
	return got
}

func TestSharedKeyOutlivesOneOwner(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("c", "1", "x", "1"), t0)
	tr.Set("b", objects("c", "1"), t0)
	tr.Commit(expectPending(t, tr, "c:>1", "x:>1"))
	tr.Set("a", nil, t0)
	tr.Commit(expectPending(t, tr, "x:1>"))
	tr.Set("b", nil, t0)
	tr.Commit(expectPending(t, tr, "c:1>"))
	if tr.Len() != 0 {
		t.Fatalf("%d entries left", tr.Len())
	}
	if tr.Has("a") || tr.Has("b") {
		t.Error("an owner that wants nothing is known")
	}
}

func TestSameKeyTwiceInOneOwner(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("c", "1", "c", "1"), t0)
	tr.Set("a", objects("c", "1"), t0)
	tr.Commit(expectPending(t, tr, "c:>1"))
	tr.Set("a", nil, t0)
	expectPending(t, tr, "c:1>")
}

func TestUncommittedStaysPending(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	expectPending(t, tr, "x:>1")
	tr.Set("a", objects("x", "2"), t0)
	expectPending(t, tr, "x:>2")
	tr.Set("a", nil, t0)
	expectPending(t, tr)
	if tr.Len() != 0 {
		t.Fatal("an object that never existed is remembered")
	}
}

func TestDeletionsComeLast(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("b", "1", "z", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("n", objects("q", "1"), t0)
	tr.Set("a", nil, t0)
	expectPending(t, tr, "q:>1", "z:1>", "b:1>")
}

func TestLinger(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", nil, t0)
	expectPending(t, tr)
	tr.ReplaceActual(maps.All(map[string]string{"l": "1"}), t0.Add(30*time.Second)) // an audit does not begin the time again
	if next := tr.NextExpiry(); !next.Equal(t0.Add(time.Minute)) {
		t.Fatalf("next %v", next)
	}
	tr.Set("b", objects("l", "1"), t0) // used again in time
	tr.Expire(t0.Add(time.Hour))
	expectPending(t, tr)
	tr.Set("b", nil, t0)
	tr.Expire(t0.Add(time.Minute - 1))
	expectPending(t, tr)
	tr.Expire(t0.Add(time.Minute))
	expectPending(t, tr, "l:1>")
}

// TestNextExpiry: of several keys that linger it is the first one's.
func TestNextExpiry(t *testing.T) {
	tr := newTracker()
	for i, k := range []string{"l1", "l2", "l3"} {
		tr.Set(k, objects(k, "1"), t0)
		tr.Commit(tr.Pending())
		tr.Set(k, nil, t0.Add(time.Duration(3-i)*time.Second))
	}
	if next := tr.NextExpiry(); !next.Equal(t0.Add(time.Minute + time.Second)) {
		t.Fatalf("next %v", next)
	}
	tr.Expire(t0.Add(time.Minute + time.Second))
	expectPending(t, tr, "l3:1>")
}

// TestRelease: what lingers may go before its time, and nothing else may.
func TestRelease(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1", "x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Release("x")
	tr.Release("nothing")
	expectPending(t, tr)
	tr.Set("a", objects("x", "1"), t0)
	if got := slices.Collect(tr.Lingering()); !slices.Equal(got, []string{"l"}) {
		t.Fatalf("lingering: %v", got)
	}
	tr.Release("x")
	tr.Release("l")
	expectPending(t, tr, "l:1>")
	for range tr.Lingering() {
		t.Fatal("it lingers still")
	}
}

func TestReplaceActual(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1", "l", "1", "p", "aabbcc"), t0)
	tr.Commit(tr.Pending())
	there := maps.All(map[string]string{"x": "2", "l": "1", "foreign": "1", "p": "ccbbaa"})
	for range 2 { // the first look changes nothing
		c := tr.Compare()
		for k, v := range there {
			c.Found(k, v)
		}
		expectDrift(t, "looked at", c.End())
		expectPending(t, tr)
	}
	expectDrift(t, "replaced", tr.ReplaceActual(there, t0))
	got := show(tr.Pending())
	slices.Sort(got)
	if want := []string{"foreign:1>", "x:2>1", "y:>1"}; !slices.Equal(got, want) {
		t.Fatalf("pending %v, want %v", got, want)
	}
}

// TestComparisonInParts: what comes and goes between its parts does not hide that something is missing.
func TestComparisonInParts(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	c := tr.Compare()
	c.Found("x", "1")
	tr.Set("b", objects("z", "1"), t0)
	tr.Commit(tr.Pending())
	c.Found("z", "1") // as many keys as there were are met
	tr.Set("b", nil, t0)
	tr.Commit(tr.Pending())
	if got := c.End(); c.Spoiled() || len(got) != 1 || got[0].Key != "y" || got[0].Found != "" {
		t.Fatalf("%+v", got)
	}
	tr.ReplaceActual(maps.All(map[string]string{"x": "1", "y": "1"}), t0)
	if !c.Spoiled() {
		t.Fatal("what is believed was replaced in the midst of a comparison, and that goes unsaid")
	}
}

// TestPendingIsNoDrift: a key that is not written yet is absent from the kernel, and a comparison does not report it.
func TestPendingIsNoDrift(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("b", objects("y", "1"), t0)
	c := tr.Compare()
	c.Found("x", "1")
	if got := c.End(); len(got) != 0 {
		t.Errorf("drift %+v, and only y is pending", got)
	}
}

// TestUnseen: a key that the kernel holds is unseen until an owner has wanted it.
func TestUnseen(t *testing.T) {
	tr := newTracker()
	tr.ReplaceActual(maps.All(map[string]string{"x": "1", "y": "1"}), t0)
	tr.Set("a", objects("x", "1"), t0)
	for key, want := range map[string]bool{"x": false, "y": true, "z": false} {
		if got := tr.Unseen(key); got != want {
			t.Errorf("Unseen(%s) is %t, want %t", key, got, want)
		}
	}
}

func expectDrift(t *testing.T, how string, drift []Drift[string]) {
	t.Helper()
	var told []string
	for _, d := range drift {
		told = append(told, fmt.Sprintf("%s:%s is %s", d.Key, d.Believed, d.Found))
	}
	slices.Sort(told)
	if want := []string{"foreign: is 1", "x:1 is 2", "y:1 is "}; !slices.Equal(told, want) {
		t.Errorf("%s: drift %v, want %v", how, told, want)
	}
}

func TestAlignMovesLittle(t *testing.T) {
	for _, c := range []struct{ have, want, exp string }{
		{"", "aabb", "aabb"},
		{"aabbcc", "aacc", "aacc"},       // b's slot takes the last one
		{"aabbccdd", "bbccdd", "ddbbcc"}, // one move, one removal
		{"aabb", "aabbcc", "aabbcc"},     // growth appends
		{"aa\x00\x00cc", "ccaa", "aacc"}, // a hole is filled
		{"aaaabb", "bbaaaa", "aaaabb"},   // weights: repeated elements
		{"xxyyzz", "aabbcc", "aabbcc"},   // nothing in common
	} {
		if got := align(c.have, c.want, 2); got != c.exp {
			t.Errorf("align(%q, %q) = %q, want %q", c.have, c.want, got, c.exp)
		}
	}
}

// Whatever happens in between, committing what is pending makes have equal to
// what the owners want, pools as multisets.
func TestRandomSequences(t *testing.T) {
	keys := []string{"a", "b", "l", "p1", "p2", "z"}
	sequences := uint64(300)
	if testing.Short() {
		sequences = 100
	}
	for seed := range sequences {
		r := rand.New(rand.NewPCG(seed, 1))
		tr, wants := newTracker(), map[string]map[string]string{}
		for range 40 {
			o := string(rune('A' + r.IntN(3)))
			switch r.IntN(7) {
			case 0, 1:
				set := map[string]string{}
				for _, k := range keys {
					if r.IntN(2) == 0 {
						set[k] = value(k, r, o)
					}
				}
				wants[o] = set
				tr.Set(o, owned(o, set), t0)
			case 4:
				tr.Hold(o, t0)
			case 6:
				if tr.keeping {
					tr.EndKeep(t0)
				} else {
					tr.KeepUnseen(t0)
				}
			case 5:
				all := func(string) bool { return true }
				tr.CommitAnew(all, tr.Anew(all))
			case 2:
				some := tr.Pending()
				tr.Commit(some[:r.IntN(len(some)+1)])
			case 3:
				there := map[string]string{}
				for k, v := range tr.Wanted() {
					if r.IntN(3) > 0 {
						there[k] = v
					}
				}
				there["pX"], there["x"] = "xx", "xx" // without an owner
				tr.ReplaceActual(maps.All(there), t0)
			}
			checkSum(t, seed, tr)
			checkKept(t, seed, tr)
		}
		tr.EndKeep(t0)
		for o, set := range wants {
			tr.Set(o, owned(o, set), t0) // or it is on hold
		}
		tr.Expire(t0.Add(time.Hour))
		tr.Commit(tr.Pending())
		checkHave(t, seed, tr, wants)
		checkSum(t, seed, tr)
	}
}

// checkKept: while unseen keys are kept, none of them and no shared one is to be deleted or lingers.
func checkKept(t *testing.T, seed uint64, tr *Tracker[string, string]) {
	t.Helper()
	for k, e := range tr.entries {
		_, lingers := tr.lingering[e]
		if tr.keeping && e.refs == 0 && e.have != "" && (e.first == nil || tr.p.Shared(k)) && (lingers || e.want != e.have) && !tr.isHeld(e) {
			t.Fatalf("seed %d: %s, which is there and to be kept, lingers (%t) or is to be %q", seed, k, lingers, e.want)
		}
	}
}

// checkSum: the sum is that of what is there.
func checkSum(t *testing.T, seed uint64, tr *Tracker[string, string]) {
	t.Helper()
	var sum uint64
	for k, e := range tr.entries {
		if e.have != "" {
			sum += tr.p.Sum(k, e.have)
		}
	}
	if tr.Sum() != sum {
		t.Fatalf("seed %d: the sum is %x, and that of all that is there %x", seed, tr.Sum(), sum)
	}
}

func owned(o string, set map[string]string) (objs []Object[string]) {
	for k, v := range set {
		objs = append(objs, Object[string]{k + own(k, o), v})
	}
	return objs
}

// own makes keys other than z and l private to their owner.
func own(k, o string) string {
	if k == "z" || k == "l" {
		return ""
	}
	return o
}

func value(k string, r *rand.Rand, o string) string {
	if k[0] != 'p' {
		if k == "z" || k == "l" {
			return "same"
		}
		return fmt.Sprint(o, r.IntN(3))
	}
	s := ""
	for range 1 + r.IntN(40) {
		s += fmt.Sprintf("%02d", 1+r.IntN(20))
	}
	return s
}

func checkHave(t *testing.T, seed uint64, tr *Tracker[string, string], wants map[string]map[string]string) {
	t.Helper()
	n := map[string]bool{}
	for o, set := range wants {
		for k, v := range set {
			key := k + own(k, o)
			n[key] = true
			if have := tr.Have(key); !samePool(have, v, tr.p.Width(key)) || len(have) != len(v) {
				t.Fatalf("seed %d: %s is %q, want %q", seed, key, have, v)
			}
		}
	}
	if left := len(tr.held) + len(tr.holders) + len(tr.lingering) + len(tr.before); left != 0 {
		t.Fatalf("seed %d: %d entries left in the layers", seed, left)
	}
	if tr.Len() != len(n) || tr.PendingCount() != 0 {
		t.Fatalf("seed %d: %d keys known, %d wanted, %d pending", seed, tr.Len(), len(n), tr.PendingCount())
	}
}

// Any front part of Pending must be good by itself, also when a load found
// everything gone and the queue is in no order.
func TestCreationsComeInRankOrder(t *testing.T) {
	tr := newTracker()
	tr.Set("o", objects("a", "1", "m", "1", "z", "1"), t0)
	tr.Commit(tr.Pending())
	tr.ReplaceActual(maps.All(map[string]string{"m": "2"}), t0)
	tr.Set("n", objects("b", "1"), t0)
	expectPending(t, tr, "a:>1", "b:>1", "z:>1", "m:2>1")
}

// The lowest and the highest rank have their places too, first and last of all.
func TestLowestAndHighestRank(t *testing.T) {
	tr := newTracker()
	low, high := "\x00", "\xff"
	tr.Set("a", objects(high, "1", "m", "1", low, "1"), t0)
	tr.Commit(expectPending(t, tr, low+":>1", "m:>1", high+":>1"))
	tr.Set("a", objects("m", "2"), t0)
	tr.Set("b", objects("n", "1"), t0)
	tr.Commit(expectPending(t, tr, "n:>1", "m:1>2", high+":1>", low+":1>"))
	tr.Set("c", objects(low, "1"), t0)
	if got := show(tr.Additions("c")); !slices.Equal(got, []string{low + ":>1"}) {
		t.Errorf("additions %q", got)
	}
}

// A key that is given up before its last change was written lingers as it is there.
func TestLingersAsItIs(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("l", "2"), t0)
	tr.Set("a", nil, t0)
	expectPending(t, tr)
	tr.ReplaceActual(maps.All(map[string]string{}), t0) // another program deleted it: no owner needs it
	if !tr.NextExpiry().IsZero() || tr.Len() != 0 {
		t.Errorf("%d keys, next expiry %v", tr.Len(), tr.NextExpiry())
	}
}

// A deletion that is committed twice leaves no entry.
func TestCommitTwice(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", nil, t0)
	gone := expectPending(t, tr, "x:1>")
	tr.Commit(gone)
	tr.Commit(gone)
	if tr.Len() != 0 {
		t.Errorf("%d keys are known", tr.Len())
	}
}

func TestWanted(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "2"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "3", "z", "4"), t0)
	if got := maps.Collect(tr.Wanted()); !maps.Equal(got, map[string]string{"x": "3", "z": "4"}) {
		t.Errorf("wanted %v", got)
	}
	n := 0
	for range tr.Wanted() {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d were given to a caller who wanted one", n)
	}
}

// An owner may go back to what was there while its change is being written.
func TestBackWhileWriting(t *testing.T) {
	all := func(string) bool { return true }
	for name, write := range map[string]func(tr *Tracker[string, string]) (done func()){
		"a change": func(tr *Tracker[string, string]) func() { list := tr.Pending(); return func() { tr.Commit(list) } },
		"a rebuild": func(tr *Tracker[string, string]) func() {
			list := tr.Anew(all)
			return func() { tr.CommitAnew(all, list) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTracker()
			tr.Set("a", objects("x", "1"), t0)
			tr.Commit(tr.Pending())
			tr.Set("a", objects("x", "2"), t0)
			done := write(tr)
			tr.Set("a", objects("x", "1"), t0)
			expectPending(t, tr)
			done()
			expectPending(t, tr, "x:2>1")
		})
	}
}
