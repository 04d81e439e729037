package scenarios_test

import (
	"testing"

	"github.com/fairlead/fairlead/test/scenarios"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// TestEveryScenarioReads expands every variant of every file; a misspelt word in any of them fails here, without a lab.
func TestEveryScenarioReads(t *testing.T) {
	all, err := kit.Load(scenarios.FS)
	if err != nil {
		t.Fatal(err)
	}
	variants := 0
	for _, s := range all {
		variants += len(s.Variants())
	}
	if variants < 120 {
		t.Errorf("%d variants, want at least 120 (issue 3)", variants)
	}
	t.Logf("%d scenarios, %d variants", len(all), variants)
}
