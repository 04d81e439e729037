package dataplanetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// wanted returns the whole desired state.
func (b *Bed) wanted() (out []dataplane.Object) {
	for k, v := range b.Track.Wanted() {
		out = append(out, dataplane.Object{Key: k, Value: v})
	}
	return out
}

// differing returns a description of each difference that Compare reports.
func (b *Bed) differing(t testing.TB) (out []string) {
	t.Helper()
	err := b.Driver.Compare(t.Context(), b.wanted(), func(k dataplane.Key, found string) {
		out = append(out, fmt.Sprintf("%s is %q", Name(b.Driver, k), found))
	})
	if err != nil {
		t.Fatalf("compare: %v", err)
	}
	return out
}

// testCompare: a comparison of single objects detects each edit of them by another
// program before a Load, and reports no other difference.
func testCompare(t *testing.T, s *Subject) {
	b := s.holding(t)
	if found := b.differing(t); len(found) > 0 {
		t.Fatalf("before any edit differ: %s", strings.Join(found, "; "))
	}
	for _, e := range s.Edits {
		ok := t.Run(e.Name, func(t *testing.T) {
			e.Do(t)
			if found := b.differing(t); (len(found) == 0) != e.Beside {
				t.Errorf("after the edit differ: %s", strings.Join(found, "; "))
			}
			b.Load(t)
			b.Sync(t)
			b.Now = b.Now.Add(48 * time.Hour)
			b.Track.Expire(b.Now)
			b.Sync(t)
		})
		if !ok {
			return
		}
	}
}

// holding returns a bed after a Sync of the catalogue, or of its first Services if the subject is slow (Few).
func (s *Subject) holding(t testing.TB) *Bed {
	t.Helper()
	b := s.bed(s.Driver)
	b.Load(t)
	services := Catalogue(s.Families)
	if s.Few {
		const few = 4
		names := slices.SortedFunc(maps.Keys(services), model.ServiceKey.Compare)
		for _, k := range names[few:] {
			delete(services, k)
		}
	}
	b.WantAll(services)
	b.Sync(t)
	return b
}

// testSurvey: a Survey reports the same objects as a Load after each edit by another program, and does not update the
// driver's state: the next Load detects the same drift as without a Survey.
func testSurvey(t *testing.T, s *Subject) {
	b := s.holding(t)
	check := func(t *testing.T, edited bool) {
		t.Helper()
		surveyed := map[dataplane.Key]string{}
		failed := s.Driver.Survey(t.Context(), func(k dataplane.Key, v string) { surveyed[k] = v })
		loaded, err := read(t.Context(), s.Driver)
		if (failed == nil) != (err == nil) || err == nil && !maps.EqualFunc(loaded, surveyed, dataplane.Same) {
			t.Errorf("a survey gives %d objects and %v, a load %d and %v", len(surveyed), failed, len(loaded), err)
		}
		if sums, can := s.Driver.(dataplane.Summer); can {
			all, err := sums.Sum(t.Context())
			if (failed == nil) != (err == nil) || err == nil && all != total(s.Driver, surveyed) {
				t.Errorf("in sum %+v and %v, one by one %+v and %v", all, err, total(s.Driver, surveyed), failed)
			}
		}
		if drift := b.Load(t); edited && len(drift) == 0 && len(b.Rebuild) == 0 {
			t.Error("after a survey a load finds no difference")
		}
	}
	check(t, false)
	for _, e := range s.Edits {
		ok := t.Run(e.Name, func(t *testing.T) {
			e.Do(t)
			check(t, true)
			b.Sync(t)
			b.Now = b.Now.Add(48 * time.Hour)
			b.Track.Expire(b.Now)
			b.Sync(t)
		})
		if !ok {
			return
		}
	}
}

// total returns the Total that Sum should return for these objects.
func total(d dataplane.Driver, objects map[dataplane.Key]string) (all dataplane.Total) {
	for k, v := range objects {
		all.Objects++
		if w := d.Width(k); w > 0 {
			all.Sum += dataplane.PoolSum(k, v, w)
		} else {
			all.Sum += dataplane.ObjectSum(k, v)
		}
	}
	return all
}

// testSurveyBeside: a Survey concurrent with writes reports the actual state before or after a write, and fails at most with
// ErrInterrupted. It does not disturb the writes. The race detector finds unsynchronized shared state.
func testSurveyBeside(t *testing.T, s *Subject) {
	b := s.holding(t)
	before := maps.Collect(b.Track.Wanted())
	written := map[dataplane.Key]bool{} // concurrently with the surveys; read after the writes
	over, read := make(chan struct{}), make(chan map[dataplane.Key]string, 1)
	end := sync.OnceFunc(func() { close(over) })
	defer end()
	go func() { read <- surveys(t, s.Driver, over) }()
	for turn := range 20 {
		b.Want(Service(0), ClusterIP(s.Families[0], 0, turn%7+1))
		for _, d := range b.Pending() {
			written[d.Key] = true
		}
		b.Sync(t)
	}
	end()
	for k, v := range <-read {
		same := dataplane.Same(before[k], v)
		if w := s.Driver.Width(k); w > 0 {
			same = canonical(before[k], w) == canonical(v, w)
		}
		if !written[k] && !same {
			t.Errorf("a survey beside writes reports %s as %q, want %q", Name(s.Driver, k), v, before[k])
		}
	}
	if drift := b.Load(t); len(drift) > 0 {
		t.Errorf("after surveys beside writes %d objects are not as believed", len(drift))
	}
}

// surveys calls Survey until over is closed, and once more, and returns all reported objects.
func surveys(t *testing.T, d dataplane.Driver, over <-chan struct{}) map[dataplane.Key]string {
	all := map[dataplane.Key]string{}
	for last := false; ; {
		err := d.Survey(t.Context(), func(k dataplane.Key, v string) { all[k] = v })
		if sums, can := d.(dataplane.Summer); can && err == nil {
			_, err = sums.Sum(t.Context())
		}
		if err != nil && !errors.Is(err, dataplane.ErrInterrupted) {
			t.Errorf("a survey beside writes: %v", err)
		}
		if last {
			return all
		}
		select {
		case <-over:
			last = true
		default:
		}
	}
}
