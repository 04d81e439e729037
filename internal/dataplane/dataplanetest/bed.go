package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
	"github.com/fairlead/fairlead/internal/model"
)

// Bed drives one driver as the engine does, without the engine's rate limit.
type Bed struct {
	Driver dataplane.Driver
	Track  *delta.Tracker[dataplane.Key, model.ServiceKey]
	View   model.NodeView
	// Now is the bed's clock; only the test advances it.
	Now time.Time
	// Rebuild are the families that the next Sync rebuilds, as the last Load or Apply required.
	Rebuild []model.Family
	// Checked is called after each successful Sync; nil: no call.
	Checked func(testing.TB)
}

// NewBed returns a Bed with empty desired and actual states.
func NewBed(d dataplane.Driver, v model.NodeView) *Bed {
	return &Bed{Driver: d, View: v, Now: time.Unix(1_800_000_000, 0),
		Track: delta.New[dataplane.Key, model.ServiceKey](delta.Params[dataplane.Key]{
			Width: d.Width, Linger: d.Linger, Rank: func(k dataplane.Key) uint8 { return uint8(k.Kind) },
		})}
}

// Base adds the base objects to the desired state. Their owner is the zero key, as in the engine.
func (b *Bed) Base() {
	var objs []delta.Object[dataplane.Key]
	b.Driver.Base(b.View, func(o dataplane.Object) { objs = append(objs, delta.Object[dataplane.Key](o)) })
	b.Track.Set(model.ServiceKey{}, objs, b.Now)
}

// Want replaces the desired state of a Service by these Frontends; without Frontends it removes the Service.
func (b *Bed) Want(svc model.ServiceKey, frontends ...model.Frontend) {
	var objs []delta.Object[dataplane.Key]
	for i := range frontends {
		b.Driver.Render(&frontends[i], &b.View, func(o dataplane.Object) { objs = append(objs, delta.Object[dataplane.Key](o)) })
	}
	b.Track.Set(svc, objs, b.Now)
}

// WantAll sets the desired state of the base and of these Services.
func (b *Bed) WantAll(services map[model.ServiceKey][]model.Frontend) {
	b.Base()
	for _, k := range slices.SortedFunc(maps.Keys(services), model.ServiceKey.Compare) {
		b.Want(k, services[k]...)
	}
}

// Pending returns the pending differences between the desired and the actual state.
func (b *Bed) Pending() []delta.Diff[dataplane.Key] { return b.Track.Pending() }

// Apply applies these differences in one batch, and commits them if the driver succeeds.
func (b *Bed) Apply(ctx context.Context, diffs []delta.Diff[dataplane.Key]) (dataplane.Applied, error) {
	return b.ApplyPart(ctx, diffs, nil)
}

// ApplyPart applies these differences in one batch; later are the differences of the batches that follow immediately.
func (b *Bed) ApplyPart(ctx context.Context, diffs, later []delta.Diff[dataplane.Key]) (dataplane.Applied, error) {
	batch := dataplane.Batch{Ops: make([]dataplane.Op, 0, len(diffs))}
	batch.Later = func(yield func(dataplane.Op) bool) {
		for _, d := range later {
			if !yield(dataplane.Op{Key: d.Key, Have: d.Have, Want: d.Want}) {
				return
			}
		}
	}
	for _, d := range diffs {
		batch.Ops = append(batch.Ops, dataplane.Op{Key: d.Key, Have: d.Have, Want: d.Want})
	}
	done, err := b.Driver.Apply(ctx, batch)
	if err == nil {
		b.Track.Commit(diffs)
	}
	return done, err
}

// Sync applies all pending differences, with a rebuild if the driver requires one. If it fails, the test fails.
func (b *Bed) Sync(t testing.TB) dataplane.Applied {
	t.Helper()
	var sum dataplane.Applied
	for _, f := range b.Rebuild {
		done, err := b.Anew(t.Context(), f)
		if err != nil {
			t.Fatalf("rebuild %s: %v", f, err)
		}
		sum.Operations += done.Operations
	}
	b.Rebuild = nil
	diffs := b.Pending()
	if len(diffs) == 0 {
		return sum
	}
	done, err := b.Apply(t.Context(), diffs)
	var rebuild *dataplane.RebuildError
	if errors.As(err, &rebuild) {
		b.Rebuild = rebuild.Families
		return b.Sync(t)
	}
	if err != nil {
		t.Fatalf("apply %d differences: %v", len(diffs), err)
	}
	if b.Checked != nil {
		b.Checked(t)
	}
	done.Operations += sum.Operations
	return done
}

// Anew rebuilds one family.
func (b *Bed) Anew(ctx context.Context, f model.Family) (dataplane.Applied, error) {
	ofFamily := func(k dataplane.Key) bool { return k.Family == f }
	diffs := b.Track.Anew(ofFamily)
	batch := dataplane.Batch{Rebuild: []model.Family{f}}
	for _, d := range diffs {
		batch.Ops = append(batch.Ops, dataplane.Op{Key: d.Key, Have: d.Have, Want: d.Want})
	}
	done, err := b.Driver.Apply(ctx, batch)
	if err == nil {
		b.Track.CommitAnew(ofFamily, diffs)
	}
	return done, err
}

// Load reads the actual state from the kernel and returns the drift: what differs from the recorded actual state.
func (b *Bed) Load(t testing.TB) []delta.Drift[dataplane.Key] {
	t.Helper()
	drift, err := b.TryLoad(t.Context())
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return drift
}

// TryLoad is Load with an error result. On failure the bed's state is unchanged. A
// RebuildError is no failure: the next Sync rebuilds the families that it names.
func (b *Bed) TryLoad(ctx context.Context) ([]delta.Drift[dataplane.Key], error) {
	there, err := read(ctx, b.Driver)
	var rebuild *dataplane.RebuildError
	if err != nil && !errors.As(err, &rebuild) {
		return nil, err
	}
	if rebuild != nil {
		b.Rebuild = rebuild.Families
	}
	return b.Track.ReplaceActual(maps.All(there), b.Now), nil
}

func read(ctx context.Context, d dataplane.Driver) (map[dataplane.Key]string, error) {
	there := map[dataplane.Key]string{}
	var twice error
	err := d.Load(ctx, func(k dataplane.Key, v string) {
		if _, dup := there[k]; dup {
			twice = fmt.Errorf("load reported %s twice", Name(d, k))
		}
		there[k] = v
	})
	return there, errors.Join(err, twice)
}

// Snapshot returns the actual state in readable form. It sorts the slots of pools,
// because the slot of an element has no meaning.
func Snapshot(t testing.TB, d dataplane.Driver) map[string]string {
	t.Helper()
	there, err := read(t.Context(), d)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	out := make(map[string]string, len(there))
	for k, v := range there {
		out[Name(d, k)] = canonical(v, d.Width(k))
	}
	return out
}

func canonical(v string, width int) string {
	if width == 0 {
		return fmt.Sprintf("%q", v)
	}
	var slots []string
	for at := 0; at+width <= len(v); at += width {
		if s := v[at : at+width]; strings.Trim(s, "\x00") != "" {
			slots = append(slots, fmt.Sprintf("%x", s))
		}
	}
	slices.Sort(slots)
	return strings.Join(slots, " ")
}

// Name returns the readable name of a key.
func Name(d dataplane.Driver, k dataplane.Key) string {
	return d.KeyString(k)
}

// Same fails the test unless both snapshots are equal, except for lingering objects.
func Same(t testing.TB, got, want map[string]string, lingers func(name string) bool) {
	t.Helper()
	for name, v := range want {
		if g, ok := got[name]; !ok {
			t.Errorf("missing: %s", name)
		} else if g != v {
			t.Errorf("%s is %s, want %s", name, g, v)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && !lingers(name) {
			t.Errorf("left over: %s", name)
		}
	}
}
