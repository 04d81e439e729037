package app

import (
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

func TestNoLocalCounts(t *testing.T) {
	n := noLocal{of: map[model.ServiceKey][2]bool{}}
	a, b := model.ServiceKey{Name: "a"}, model.ServiceKey{Name: "b"}
	for i, step := range []struct {
		key     model.ServiceKey
		now     [2]bool
		changed bool
		count   [2]int
	}{
		{a, [2]bool{true, false}, true, [2]int{1, 0}},
		{b, [2]bool{true, true}, true, [2]int{2, 1}},
		{b, [2]bool{true, true}, false, [2]int{2, 1}},
		{a, [2]bool{false, true}, true, [2]int{1, 2}},
		{a, [2]bool{}, true, [2]int{1, 1}},
		{a, [2]bool{}, false, [2]int{1, 1}},
		{b, [2]bool{}, true, [2]int{0, 0}},
	} {
		if changed := n.set(step.key, step.now); changed != step.changed || n.count != step.count {
			t.Errorf("step %d: changed %t, counts %v; want %t, %v", i, changed, n.count, step.changed, step.count)
		}
	}
	if len(n.of) != 0 {
		t.Errorf("%d Services are remembered for nothing", len(n.of))
	}
}

// TestNoLocalCountIsLinear: counting all Services again at each change took 240 s here;
// one at a time takes a tenth of a second, so that the limit holds on any machine.
func TestNoLocalCountIsLinear(t *testing.T) {
	n := noLocal{of: map[model.ServiceKey][2]bool{}}
	began := time.Now()
	for i := range 100_000 {
		n.set(model.ServiceKey{Name: strconv.Itoa(i)}, [2]bool{true, true})
		if i%1000 == 0 && time.Since(began) > time.Minute {
			t.Fatalf("%d Services take more than a minute", i)
		}
	}
}
