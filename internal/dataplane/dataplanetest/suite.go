package dataplanetest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// Factory returns a Subject on a fresh kernel of its own. It is called in the
// goroutine of the test that uses it.
type Factory func(t *testing.T) *Subject

// Subject is a driver on its kernel, with the operations that the suite may execute on that kernel.
type Subject struct {
	Driver   dataplane.Driver
	Restart  func() dataplane.Driver // returns another driver on the same kernel, without state
	Families []model.Family
	// Alone: the objects of the driver exist only in its process. No other program can
	// write or read them, so Restart, Edits, Touch and Meddle are not used.
	Alone bool
	// Steps is the number of consecutive random changes; 0: 120.
	Steps int
	// Edits each cause drift of owned objects, which must then be repaired.
	Edits []Edit
	// Touch writes to the kernel as another program, but to no object of the driver.
	Touch func(t testing.TB)
	// Meddle changes an owned object each time it is called; nil: the suite uses
	// Touch, for a driver that cannot distinguish the two.
	Meddle func(t testing.TB)
	// TellsApart: while Watch runs, the driver distinguishes the writes of Touch from
	// those of Meddle, and ignores those of Touch.
	TellsApart bool
	// FailApply makes the next Apply fail with a transient error; with after, the
	// kernel applies the batch and only the answer is lost.
	FailApply func(after bool)
	// InterruptLoad changes the kernel state during the next Load.
	InterruptLoad func()
	// Poison returns a Frontend that the kernel rejects; nil if there is none.
	Poison func(f model.Family) *model.Frontend
	// Few: a lookup of a single object is slow, so the test of it uses few Services.
	Few bool
	// Checked is called after every successful Sync; nil: no call.
	Checked func(testing.TB)
	// Lingers reports by readable name whether an object may stay after its last use.
	Lingers func(name string) bool
}

// Edit is a change of the driver's objects by another program. The suite executes
// it when the whole Catalogue is in the kernel.
type Edit struct {
	Name string
	Do   func(t testing.TB)
	// Beside: the edit only adds objects, and leaves all owned objects unchanged. A
	// comparison of single objects does not detect it.
	Beside bool
}

// Run runs the suite.
func Run(t *testing.T, make Factory) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *Subject)
	}{
		{"build and again", testBuild},
		{"restart writes nothing", testRestart},
		{"edits are repaired", testEdits},
		{"edits show in single objects", testCompare},
		{"a survey reads what a load reads", testSurvey},
		{"surveys beside writes", testSurveyBeside},
		{"incremental equals from scratch", func(t *testing.T, s *Subject) { testIncremental(t, s, make(t)) }},
		{"crash between chunks", testCrash},
		{"interrupted load", testInterrupted},
		{"load given up", testGivenUp},
		{"conflict", testConflict},
		{"refused object has a name", testRefused},
		{"failed apply", testFailed},
		{"watch", testWatch},
		{"watch again", testWatchAgain},
		{"busy neighbour", testNeighbour},
		{"view changes", func(t *testing.T, s *Subject) { testView(t, s, make(t)) }},
		{"cleanup", testCleanup},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := make(t)
			if others := []string{"restart writes nothing", "edits are repaired", "edits show in single objects", "crash between chunks", "interrupted load", "conflict", "watch", "watch again"}; s.Alone && slices.Contains(others, c.name) {
				t.Skip("nobody else can write what this data plane holds, and it ends with the process")
			}
			c.test(t, s)
		})
	}
}

// other returns a driver without state on the same kernel, unless the subject is Alone.
func (s *Subject) other() dataplane.Driver {
	if s.Alone {
		return s.Driver
	}
	return s.Restart()
}

func (s *Subject) bed(d dataplane.Driver) *Bed {
	if s.Meddle == nil {
		s.Meddle = s.Touch
	}
	b := NewBed(d, View())
	b.Checked = s.Checked
	return b
}

// built returns a bed with the whole catalogue in the kernel.
func (s *Subject) built(t *testing.T) *Bed {
	t.Helper()
	b := s.bed(s.Driver)
	b.Load(t)
	b.WantAll(Catalogue(s.Families))
	b.Sync(t)
	return b
}

func testBuild(t *testing.T, s *Subject) {
	b := s.bed(s.Driver)
	if drift := b.Load(t); len(drift) > 0 {
		t.Fatalf("a fresh kernel holds %d objects", len(drift))
	}
	b.WantAll(Catalogue(s.Families))
	if n := b.Sync(t).Operations; n < len(Catalogue(s.Families)) {
		t.Fatalf("build made %d operations", n)
	}
	settled(t, b)
	b.WantAll(Catalogue(s.Families))
	if n := len(b.Pending()); n > 0 {
		t.Fatalf("wanting the same again leaves %d differences", n)
	}
}

// settled fails the test unless the recorded actual state is in sync with the kernel and nothing is pending.
func settled(t *testing.T, b *Bed) {
	t.Helper()
	for _, d := range b.Load(t) {
		t.Errorf("%s is %q, believed %q", Name(b.Driver, d.Key), d.Found, d.Believed)
	}
	for _, d := range b.Pending() {
		t.Errorf("pending: %s from %q to %q", Name(b.Driver, d.Key), d.Have, d.Want)
	}
	if changed, err := b.Driver.Changed(t.Context()); changed || err != nil {
		t.Errorf("Changed says %v, %v after a Load", changed, err)
	}
}

func testRestart(t *testing.T, s *Subject) {
	s.built(t)
	b := s.bed(s.Restart())
	b.Load(t)
	b.WantAll(Catalogue(s.Families))
	for _, d := range b.Pending() {
		t.Errorf("pending after a restart: %s from %q to %q", Name(b.Driver, d.Key), d.Have, d.Want)
	}
}

func testEdits(t *testing.T, s *Subject) {
	b := s.built(t)
	want := Snapshot(t, s.Restart())
	for _, e := range s.Edits {
		ok := t.Run(e.Name, func(t *testing.T) {
			e.Do(t)
			if changed, err := b.Driver.Changed(t.Context()); !changed || err != nil {
				t.Errorf("Changed says %v, %v", changed, err)
			}
			if drift := b.Load(t); len(drift) == 0 {
				t.Error("nobody noticed")
			}
			b.Sync(t)
			b.Now = b.Now.Add(48 * time.Hour) // foreign objects may linger too
			b.Track.Expire(b.Now)
			b.Sync(t)
			Same(t, Snapshot(t, s.Restart()), want, func(string) bool { return false })
			settled(t, b)
		})
		if !ok {
			return // the next edit would start from an undefined state
		}
	}
}

func testIncremental(t *testing.T, s, scratch *Subject) {
	r := rand.New(rand.NewPCG(1, 2))
	services := Catalogue(s.Families)
	b := s.built(t)
	for step := range cmp.Or(s.Steps, 120) {
		for range 1 + r.IntN(4) {
			k := Mutate(r, services, s.Families)
			b.Want(k, services[k]...)
		}
		if step%10 == 9 {
			b.Now = b.Now.Add(48 * time.Hour)
			b.Track.Expire(b.Now)
		}
		b.Sync(t)
	}
	settled(t, b)
	other := scratch.bed(scratch.Driver)
	other.Load(t)
	other.WantAll(services)
	other.Sync(t)
	Same(t, Snapshot(t, s.other()), Snapshot(t, scratch.Driver), s.Lingers)
}

func testCrash(t *testing.T, s *Subject) {
	const chunk = 40
	whole := s.bed(s.Driver)
	whole.Load(t)
	whole.WantAll(Catalogue(s.Families))
	total := len(whole.Pending())
	for done := chunk; done < total; done += chunk * 5 {
		b := s.bed(s.Restart())
		b.Load(t)
		b.WantAll(Catalogue(s.Families))
		pending := b.Pending()
		if _, err := b.Apply(t.Context(), pending[:min(chunk, len(pending))]); err != nil {
			t.Fatalf("chunk at %d of %d: %v", done, total, err)
		}
	}
	b := s.bed(s.Restart())
	b.Load(t)
	b.WantAll(Catalogue(s.Families))
	b.Sync(t)
	settled(t, b)
}

func testInterrupted(t *testing.T, s *Subject) {
	b := s.built(t)
	s.InterruptLoad()
	if _, err := b.TryLoad(t.Context()); !errors.Is(err, dataplane.ErrInterrupted) {
		t.Fatalf("load during a change: %v", err)
	}
	b.Load(t)
	b.Sync(t) // repairs the interrupting change if it affected owned objects
	settled(t, b)
}

// testGivenUp: a Load that its context cancels at any point leaves the driver's state
// unchanged: the next Apply succeeds without another Load.
func testGivenUp(t *testing.T, s *Subject) {
	b := s.built(t)
	all, given := len(Snapshot(t, s.other())), 0
	for i := range 12 {
		ctx, giveUp := context.WithCancel(t.Context())
		left := all * i / 12
		err := b.Driver.Load(ctx, func(dataplane.Key, string) {
			if left--; left <= 0 {
				giveUp()
			}
		})
		giveUp()
		if err != nil { // a Load cancelled near its end may succeed
			given++
		}
		b.Want(Service(i), ClusterIP(s.Families[0], i, 3+i%5))
		if _, err := b.Apply(t.Context(), b.Pending()); err != nil {
			t.Fatalf("after a load that was given up: %v", err)
		}
	}
	if given == 0 { // a driver that reads ahead may finish before it checks the context, so the number depends on the speed
		t.Error("none of 12 loads was given up")
	}
	settled(t, b)
}

func testConflict(t *testing.T, s *Subject) {
	b := s.built(t)
	s.Meddle(t)
	before := Snapshot(t, s.Restart())
	b.Want(Service(0), ClusterIP(s.Families[0], 0, 7))
	if _, err := b.Apply(t.Context(), b.Pending()); !errors.Is(err, dataplane.ErrConflict) {
		t.Fatalf("apply after a foreign write: %v", err)
	}
	Same(t, Snapshot(t, s.Restart()), before, func(string) bool { return false })
	b.Load(t)
	b.Sync(t)
	settled(t, b)
}

func testRefused(t *testing.T, s *Subject) {
	for _, f := range s.Families {
		bad := s.Poison(f)
		if bad == nil {
			t.Skip("this data plane refuses no Frontend")
		}
		b := s.bed(s.Driver)
		b.Load(t)
		b.WantAll(Catalogue(s.Families))
		poison := model.ServiceKey{Namespace: "suite", Name: "poison"}
		b.Want(poison, *bad)
		_, err := b.Apply(t.Context(), b.Pending())
		var invalid *dataplane.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Keys) == 0 {
			t.Fatalf("%s: the kernel's refusal is %v", f, err)
		}
		for owner, keys := range b.Track.Owners(invalid.Keys) {
			if owner != poison {
				t.Errorf("%s: %s, which belongs to %s, is blamed for %s", f, Name(b.Driver, keys[0]), owner, poison)
			}
		}
		b.Want(poison)
		if errors.Is(err, dataplane.ErrInPart) {
			b.Load(t)
		}
		b.Sync(t)
		settled(t, b)
	}
}

func testFailed(t *testing.T, s *Subject) {
	b := s.built(t)
	for i, after := range []bool{false, true} {
		b.Want(Service(0), ClusterIP(s.Families[0], 0, 5+i))
		s.FailApply(after)
		_, err := b.Apply(t.Context(), b.Pending())
		var invalid *dataplane.InvalidError
		if err == nil || errors.As(err, &invalid) || errors.Is(err, dataplane.ErrUnsupported) {
			t.Fatalf("a passing failure (after: %v) reads %v", after, err)
		}
		b.Load(t)
		b.Sync(t)
		settled(t, b)
	}
}

func testView(t *testing.T, s, scratch *Subject) {
	b := s.built(t)
	views := []func(v *model.NodeView){
		func(v *model.NodeView) { v.NodePortAddrs, v.LocalhostNodePorts = v.NodePortAddrs[1:], false },
		func(v *model.NodeView) { v.Local.CIDRs = v.Local.CIDRs[:1] },
		func(v *model.NodeView) { v.ServiceCIDRs = nil },
		func(v *model.NodeView) { v.MasqueradeAll = true },
		func(v *model.NodeView) { v.MasqueradeBit = 3 },
		func(v *model.NodeView) {
			v.Local = model.LocalDetector{Mode: model.DetectInterfaceNamePrefix, Interface: "veth"}
		},
		func(v *model.NodeView) {
			v.Local = model.LocalDetector{Mode: model.DetectBridgeInterface, Interface: "cbr0"}
		},
		func(v *model.NodeView) { v.Local = model.LocalDetector{} },
	}
	for _, change := range views {
		old := b.View
		change(&b.View)
		b.Base()
		if b.Driver.ViewChanged(&old, &b.View) {
			for k, fes := range Catalogue(s.Families) {
				b.Want(k, fes...)
			}
		}
		b.Sync(t)
	}
	settled(t, b)
	other := scratch.bed(scratch.Driver)
	other.View = b.View
	other.Load(t)
	other.WantAll(Catalogue(s.Families))
	other.Sync(t)
	Same(t, Snapshot(t, s.other()), Snapshot(t, scratch.Driver), s.Lingers)
}

func testCleanup(t *testing.T, s *Subject) {
	s.built(t)
	for range 2 {
		d := s.other()
		if err := d.Cleanup(t.Context()); err != nil {
			t.Fatalf("clean up: %v", err)
		}
		if left := Snapshot(t, d); len(left) > 0 {
			t.Fatalf("left over after clean-up: %s", strings.Join(names(left), ", "))
		}
	}
}

func names(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}
