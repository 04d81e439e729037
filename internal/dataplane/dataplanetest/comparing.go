package dataplanetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// wanted gives everything that should be in the kernel.
func (b *Bed) wanted() (out []dataplane.Object) {
	for k, v := range b.Track.Wanted() {
		out = append(out, dataplane.Object{Key: k, Value: v})
	}
	return out
}

// differing names what Compare finds.
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

// testCompare: a look at single objects sees what somebody else did to them, before
// anything is loaded, and sees nothing else.
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

// holding is a bed with what the subject is to hold, in the kernel.
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

// testSurvey: what reads beside the engine sees the same as a Load, whatever somebody else did, and takes nothing of it for
// known: the Load that follows finds the same differences as if nobody had looked.
func testSurvey(t *testing.T, s *Subject) {
	driver, can := s.Driver.(dataplane.Surveyor)
	b := s.holding(t)
	if !can { // it is read by a Load in the engine's place, which must find nothing where nothing was written
		if drift := b.Load(t); len(drift) > 0 {
			t.Errorf("a load finds %d differences", len(drift))
		}
		return
	}
	check := func(t *testing.T, edited bool) {
		t.Helper()
		surveyed := map[dataplane.Key]string{}
		failed := driver.Survey(t.Context(), func(k dataplane.Key, v string) { surveyed[k] = v })
		loaded, err := read(t.Context(), s.Driver)
		if (failed == nil) != (err == nil) || err == nil && !maps.EqualFunc(loaded, surveyed, dataplane.Same) {
			t.Errorf("a survey gives %d objects and %v, a load %d and %v", len(surveyed), failed, len(loaded), err)
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
