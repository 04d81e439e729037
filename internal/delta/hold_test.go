package delta

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func expectHave(t *testing.T, tr *Tracker[string, string], want ...string) {
	t.Helper()
	tr.Commit(tr.Pending())
	var got []string
	for k, e := range tr.entries {
		got = append(got, k+":"+e.have)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("there is %v, want %v", got, want)
	}
}

func TestHoldKeepsLastGood(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "bad", "y", "bad"), t0)
	tr.Hold("a", t0)
	expectPending(t, tr)
	if tr.Len() != 1 {
		t.Errorf("%d keys are known, one is there", tr.Len())
	}
	tr.Set("a", objects("x", "good"), t0)
	expectPending(t, tr, "x:1>good")
}

// A Service that replaces one key by another, which the kernel rejects, continues with
// the first; also after a retry, and until its desired state changes.
func TestHoldKeepsKeysThatWereGivenUp(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1", "x80", "1"), t0)
	tr.Commit(tr.Pending())
	for range 2 {
		tr.Set("a", objects("x81", "bad"), t0)
		expectPending(t, tr, "x81:>bad", "x80:1>")
		tr.Hold("a", t0)
		expectPending(t, tr)
		tr.Expire(t0.Add(time.Hour)) // what is held does not linger
		expectHave(t, tr, "l:1", "x80:1")
	}
	tr.Set("a", objects("x82", "1"), t0)
	expectHave(t, tr, "l:1", "x82:1")
	tr.Expire(t0.Add(time.Hour))
	expectHave(t, tr, "x82:1")
}

// An owner that changes its mind twice before anything is in the kernel goes back
// to what is there.
func TestHoldAfterTwoChanges(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x80", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x81", "1"), t0)
	tr.Set("a", objects("x82", "bad"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "x80:1")
	tr.Set("a", nil, t0)
	expectHave(t, tr)
	if len(tr.held)+len(tr.holders)+len(tr.before)+len(tr.owners) > 0 {
		t.Errorf("something is left of an owner that is gone: %+v", tr)
	}
}

// What another owner wants is not held, whether named once or twice.
func TestHoldLeavesOthersAlone(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("s", "1", "s", "1", "x", "1"), t0)
	tr.Set("b", objects("s", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("s", "2", "s", "2", "x", "bad"), t0)
	tr.Set("b", objects("s", "2"), t0)
	tr.Hold("a", t0)
	tr.Commit(expectPending(t, tr, "s:1>2"))
	tr.Set("b", nil, t0)
	expectPending(t, tr, "s:2>") // a's hold of it ended when b changed it

	tr = newTracker()
	tr.Set("a", objects("s", "1", "s", "1", "x", "1"), t0) // listed twice, no other owner
	tr.Commit(tr.Pending())
	tr.Set("a", objects("s", "2", "s", "2", "x", "bad"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "s:1", "x:1")
}

// An owner whose every try is refused keeps each of its keys once, however often it
// tries: what is held does not grow.
func TestHoldAgainAndAgain(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	for range 5 {
		tr.Set("a", objects("x", "bad"), t0)
		tr.Hold("a", t0)
	}
	if n := len(tr.held["a"]); n != 2 {
		t.Errorf("%d keys are held, want 2", n)
	}
	expectHave(t, tr, "x:1", "y:1")
}

// What an owner had at its first refusal counts at the second, not what it had before
// the first, also while others wait to be written.
func TestHoldTwiceAmongOthers(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("other", objects("z", "1"), t0)
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(slices.DeleteFunc(tr.Pending(), func(d Diff[string]) bool { return d.Key != "y" }))
	tr.Set("a", objects("x", "bad", "y", "1"), t0)
	tr.Hold("a", t0)
	tr.Set("a", objects("w", "bad"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "x:1", "y:1", "z:1")
}

// A key that another owner uses as it is stays when that owner goes.
func TestHoldOutlivesAnotherUse(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1", "x", "1"), t0)
	tr.Set("b", objects("l", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "bad"), t0)
	tr.Hold("a", t0)
	tr.Set("b", nil, t0)
	tr.Expire(t0.Add(48 * time.Hour))
	expectHave(t, tr, "l:1", "x:1")
}

// A shared key that is refused holds up none of its owners once all are put aside.
func TestHoldAllOwnersOfASharedKey(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("s", "1", "x", "1"), t0)
	tr.Set("b", objects("s", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	for _, o := range []string{"a", "b"} {
		tr.Set(o, objects("s", "bad", o, "1"), t0)
	}
	for o, keys := range tr.Owners([]string{"s"}) {
		if !slices.Equal(keys, []string{"s"}) {
			t.Errorf("%s is blamed for %v", o, keys)
		}
		tr.Hold(o, t0)
	}
	expectHave(t, tr, "s:1", "x:1", "y:1")
}

// A key that one owner has just released to another one, which is rejected, is deleted:
// its value refers to a key that only the first owner wanted.
func TestHoldLetsGoWhatAnotherGaveUp(t *testing.T) {
	tr := newTracker()
	tr.Set("b", objects("c", "1", "x", "to c"), t0)
	tr.Set("a", objects("y", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("b", nil, t0)
	tr.Set("a", objects("x", "to d", "y", "bad"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "y:1")
}

// The same if the first owner is itself in quarantine.
func TestHoldLetsGoWhatAnotherHeld(t *testing.T) {
	tr := newTracker()
	tr.Set("b", objects("x", "to c", "z", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("b", objects("z", "bad"), t0)
	tr.Hold("b", t0)
	tr.Set("a", objects("x", "to d", "y", "bad"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "z:1")
}

// A key that another owner took from one in quarantine is held no more, also after
// that has been tried and refused again.
func TestOverruledIsNotHeldAgain(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("y", "bad"), t0)
	tr.Hold("a", t0)
	tr.Set("b", objects("c", "1", "x", "to c"), t0)
	expectHave(t, tr, "c:1", "x:to c", "y:1")
	tr.Set("a", objects("y", "bad"), t0)
	tr.Hold("a", t0)
	tr.Set("b", nil, t0)
	expectHave(t, tr, "y:1")
}

// The same if it was taken before the first refusal, in a write that went in.
func TestTakenBeforeTheRefusalIsNotHeld(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("y", "bad"), t0)
	tr.Set("b", objects("c", "1", "x", "to c"), t0)
	part := slices.DeleteFunc(tr.Pending(), func(d Diff[string]) bool { return d.Key == "y" })
	tr.Commit(part)
	tr.Hold("a", t0)
	tr.Set("b", nil, t0)
	expectHave(t, tr, "y:1")
}

// What has come into the kernel since everything was last there is held as well.
func TestHoldKeepsWhatCameInBetween(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("c1", "1", "x", "to c1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("c2", "1", "x", "to c2"), t0)
	tr.Set("b", objects("y", "1"), t0)
	part := slices.DeleteFunc(tr.Pending(), func(d Diff[string]) bool { return d.Key == "y" || d.Want == "" })
	tr.Commit(part)
	tr.Set("a", objects("c3", "bad", "x", "to c3"), t0)
	tr.Hold("a", t0)
	expectHave(t, tr, "c1:1", "c2:1", "x:to c2", "y:1")
	tr.Set("a", nil, t0)
	expectHave(t, tr, "y:1")

	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "2"), t0)
	tr.Set("b", objects("y", "2"), t0)
	tr.Commit(slices.DeleteFunc(tr.Pending(), func(d Diff[string]) bool { return d.Key == "y" }))
	tr.Set("a", objects("z", "bad"), t0) // x is given up as it came to be in between
	tr.Hold("a", t0)
	expectHave(t, tr, "x:2", "y:2")
}

// An existing key without an owner that cannot be deleted is retained while another key
// is held; afterwards it is deleted.
func TestSpare(t *testing.T) {
	tr := newTracker()
	tr.ReplaceActual(maps.All(map[string]string{"c": "1", "x": "to c", "z": "1"}), t0)
	if tr.Spare([]string{"c"}) {
		t.Error("spared for nobody")
	}
	for _, o := range []string{"a", "b"} {
		tr.Set(o, objects("x", "bad"), t0)
		tr.Hold(o, t0)
	}
	if !tr.Spare([]string{"c", "x", "unknown"}) || tr.Spare([]string{"c"}) {
		t.Error("a key is spared, and only once")
	}
	expectHave(t, tr, "c:1", "x:to c")
	tr.Set("a", nil, t0)
	expectHave(t, tr, "c:1", "x:to c")
	tr.Set("b", nil, t0)
	expectHave(t, tr)
}

// An inert key that no owner has wanted since the start is kept for a quarantined owner
// that may have owned it; other such keys are deleted. The kept key is deleted with the
// owner's next applied state.
func TestHoldKeepsOrphans(t *testing.T) {
	tr := newTracker()
	tr.p.Inert = func(k string) bool { return k[0] == 'c' }
	tr.Set("a", objects("x", "bad", "c1", "1"), t0)
	tr.Set("b", objects("c2", "1"), t0)
	tr.ReplaceActual(maps.All(map[string]string{"x": "to c3", "c1": "0", "c2": "1", "c3": "old", "y": "stray"}), t0)
	tr.Set("b", nil, t0) // so c2 has had an owner
	tr.Hold("a", t0)
	expectHave(t, tr, "c1:0", "c3:old", "x:to c3")
	tr.Set("a", objects("x", "bad", "c1", "1"), t0) // it is tried again
	tr.Hold("a", t0)
	expectHave(t, tr, "c1:0", "c3:old", "x:to c3")
	tr.Set("a", objects("x", "good", "c1", "1"), t0)
	expectHave(t, tr, "c1:1", "x:good")
}

// What is held and cannot be put back is given up; what is there is not.
func TestLetGo(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "to c", "y", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("y", "bad"), t0)
	tr.Hold("a", t0)
	tr.ReplaceActual(maps.All(map[string]string{"y": "1"}), t0)
	expectPending(t, tr, "x:>to c")
	if !tr.LetGo([]string{"x", "y", "unknown"}, false, t0) || tr.LetGo([]string{"x", "y"}, false, t0) {
		t.Error("a key is let go, and only once")
	}
	expectHave(t, tr, "y:1")
	if !tr.LetGo([]string{"x", "y"}, true, t0) {
		t.Error("what a rebuild cannot write is let go")
	}
	expectPending(t, tr, "y:1>")
	tr.Set("a", nil, t0)
	expectHave(t, tr)
}

// A held key that another program deletes is restored.
func TestHeldIsRepaired(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "bad"), t0)
	tr.Hold("a", t0)
	tr.ReplaceActual(maps.All(map[string]string{}), t0)
	expectPending(t, tr, "x:>1")
	tr.Commit(tr.Anew(func(string) bool { return true }))
	expectHave(t, tr, "x:1")
}

func TestOwners(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "s", "1"), t0)
	tr.Set("b", objects("y", "1", "s", "1"), t0)
	got := tr.Owners([]string{"x", "s", "unknown"})
	for _, keys := range got {
		slices.Sort(keys)
	}
	if want := map[string][]string{"a": {"s", "x"}, "b": {"s"}}; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("owners %v, want %v", got, want)
	}
	tr.Set("c", objects("d", "1", "d", "1"), t0) // named twice, blamed once
	if got := tr.Owners([]string{"d"}); len(got) != 1 || len(got["c"]) != 1 {
		t.Errorf("owners %v", got)
	}
	tr.Set("a", objects("x", "1"), t0) // the first owner of s releases it
	got = tr.Owners([]string{"s"})
	if want := map[string][]string{"b": {"s"}}; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("owners %v, want %v", got, want)
	}
}

// A thousand refused objects among 50 000 owners are found in one look each: with a
// walk over all owners for each key this took two minutes.
func TestOwnersOfManyKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures a cost at a size that takes seconds to make") // only under -short, for make mutate
	}
	tr := New[int, int](Params[int]{Width: func(int) int { return 0 }, Rank: func(int) uint8 { return 0 },
		Linger: func(int) time.Duration { return 0 }})
	const owners, bad = 50_000, 1_000
	for o := range owners {
		objs := make([]Object[int], 10)
		for i := range objs {
			objs[i] = Object[int]{Key: o*10 + i, Value: "1"}
		}
		tr.Set(o, objs, t0)
	}
	all := make([]int, 0, owners)
	began := time.Now()
	for o, r := range tr.owners {
		all = append(all, o+len(r.wants))
	}
	oneWalk := max(time.Since(began), time.Millisecond)
	keys := make([]int, bad)
	for i := range keys {
		keys[i] = i * 500
	}
	for try := 0; ; try++ { // a busy machine may take the processor away at times
		began = time.Now()
		for _, k := range keys {
			if got := tr.Owners([]int{k}); len(got[k/10]) != 1 || len(got) != 1 {
				t.Fatalf("owners of %d: %v", k, got)
			}
		}
		took := time.Since(began)
		if took <= time.Duration(len(all)/500)*oneWalk {
			return
		}
		if try == 20 {
			t.Fatalf("%d keys took %v, one walk over the owners takes %v", bad, took, oneWalk)
		}
	}
}

func TestAdditions(t *testing.T) {
	tr := newTracker()
	tr.Set("base", objects("b", "1", "c", "1"), t0)
	tr.Set("new", objects("s", "1", "x", "1"), t0)
	if got := show(tr.Additions("base")); !slices.Equal(got, []string{"b:>1", "c:>1", "s:>1", "x:>1"}) {
		t.Fatalf("on an empty kernel: %v", got)
	}
	tr.Set("known", objects("s", "1", "y", "2", "z", "1"), t0)
	tr.ReplaceActual(maps.All(map[string]string{"b": "1", "c": "1", "y": "1", "old": "1"}), t0)
	if got := show(tr.Additions("base")); !slices.Equal(got, []string{"s:>1", "x:>1"}) {
		t.Fatalf("beside a Service that is there: %v", got)
	}
	tr.Set("partly", objects("v", "1", "w", "1"), t0)
	tr.Set("back", objects("l", "1", "u", "1"), t0)
	tr.ReplaceActual(maps.All(map[string]string{"b": "1", "c": "1", "v": "1", "l": "1"}), t0)
	tr.Set("known", nil, t0)
	tr.Set("partly", objects("v", "1", "w", "1"), t0) // the last to be set is no newer for it
	if got := show(tr.Additions("base")); !slices.Equal(got, []string{"s:>1", "u:>1", "x:>1"}) {
		t.Fatalf("beside one that is there in part, and one of which a key lingered: %v", got)
	}
	tr.Set("sharing", objects("c", "1", "q", "1"), t0)
	if got := show(tr.Additions("base")); !slices.Equal(got, []string{"q:>1", "s:>1", "u:>1", "x:>1"}) {
		t.Fatalf("beside one that shares a key which is there: %v", got)
	}
	tr.Set("sharing", nil, t0)
	tr.Set("base", objects("b", "1", "c", "2"), t0)
	if got := show(tr.Additions("base")); len(got) > 0 {
		t.Fatalf("on another base: %v", got)
	}
}

func TestAnew(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("l", "1", "x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("x", "2", "z", "1"), t0)
	notZ := func(k string) bool { return k != "z" }
	anew := tr.Anew(notZ)
	if got := show(anew); !slices.Equal(got, []string{"x:>2"}) {
		t.Fatalf("wanted anew: %v", got)
	}
	tr.CommitAnew(notZ, anew)
	expectPending(t, tr, "z:>1")
	expectHave(t, tr, "x:2", "z:1")
	if !tr.NextExpiry().IsZero() || tr.Len() != 2 {
		t.Error("a key lingers that the rebuild took away")
	}
}

// What a rebuild left out, because it was refused, is not taken for there.
func TestCommitAnewOfLess(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.Commit(tr.Pending())
	all := func(string) bool { return true }
	notX := func(d Diff[string]) bool { return d.Key == "x" }
	tr.CommitAnew(all, slices.DeleteFunc(tr.Anew(all), notX))
	expectPending(t, tr, "x:>1")
	anew := tr.Anew(all)
	tr.Set("a", objects("x", "2", "y", "1"), t0) // while the rebuild goes on
	tr.CommitAnew(all, anew)
	tr.Commit(expectPending(t, tr, "x:1>2"))
	tr.Set("a", objects("x", "1", "y", "1"), t0)
	tr.CommitAnew(all, tr.Anew(all))
	if n := tr.PendingCount(); n != 0 {
		t.Errorf("%d are pending after everything has been written", n)
	}
	tr.Set("a", objects("x", "bad", "y", "1"), t0)
	tr.Hold("a", t0)
	tr.CommitAnew(all, slices.DeleteFunc(tr.Anew(all), notX)) // only the held owner wants it
	if got := tr.Want("x"); got != "1" {
		t.Errorf("what is held is wanted as %q", got)
	}
	expectPending(t, tr, "x:>1")
}

// A held key passes to another owner if that owner sets another value.
func TestHoldEndsWhenAnotherOwnerChangesTheKey(t *testing.T) {
	tr := newTracker()
	tr.Set("a", objects("s", "1", "x", "1"), t0)
	tr.Commit(tr.Pending())
	tr.Set("a", objects("s", "1", "x", "bad"), t0)
	tr.Hold("a", t0)
	tr.Set("b", objects("s", "2"), t0)
	tr.Commit(expectPending(t, tr, "s:1>2"))
	tr.Set("b", nil, t0)
	expectPending(t, tr, "s:2>")
}

// What one owner changes at one time stays together, whatever came before: also
// after a load, which finds keys in no order.
func TestChangesOfOneOwnerStayTogether(t *testing.T) {
	tr := newTracker()
	owners := []string{"A", "B", "C", "D"}
	set := func(v string) {
		for _, o := range owners {
			tr.Set(o, objects("x"+o, v, "y"+o, v, "z"+o, v), t0)
		}
	}
	set("1")
	tr.Commit(tr.Pending())
	together := func() {
		t.Helper()
		list := tr.Pending()
		if len(list) != 3*len(owners) {
			t.Fatalf("pending %v", show(list))
		}
		for i := range list {
			if first := list[i-i%3]; list[i].Group != first.Group || list[i].Key[1:] != first.Key[1:] {
				t.Fatalf("pending %v", show(list))
			}
			if i >= 3 && list[i].Group == list[i-3].Group {
				t.Fatalf("the changes of two owners cannot be written one after the other: %v", show(list))
			}
		}
	}
	set("2")
	together()
	tr.Set("A", objects("xA", "2", "yA", "1", "zA", "1"), t0)
	tr.Set("B", objects("xB", "2", "yB", "3", "zB", "3"), t0)
	tr.Pending() // what has been taken back leaves the queue, and comes again at its end
	set("4")
	together()
	there := map[string]string{}
	for _, o := range owners {
		there["x"+o], there["y"+o], there["z"+o] = "0", "0", "0"
	}
	tr.ReplaceActual(maps.All(there), t0)
	together()
}
