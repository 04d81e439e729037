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
