package scenarios_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// TestEveryScenarioReads expands every variant of every file; a misspelt word in any of them fails here, without a lab.
func TestEveryScenarioReads(t *testing.T) {
	variants := 0
	all := load(t)
	for _, s := range all {
		variants += len(s.Variants())
	}
	if variants < 120 {
		t.Errorf("%d variants, want at least 120 (issue 3)", variants)
	}
	t.Logf("%d scenarios, %d variants", len(all), variants)
}

// TestScenarios runs every scenario against the agent in one mode, FAIRLEAD_MODE or nftables, with real packets. `make conformance` does the
// same with a matrix.
func TestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	scenariosIn(t, kit.Config{Modes: []string{cmp.Or(os.Getenv("FAIRLEAD_MODE"), "nftables")}}, agent(t))
}

// scenariosIn runs them against an agent, a test for each variant.
func scenariosIn(t *testing.T, cfg kit.Config, binary string) {
	t.Helper()
	cfg.Scenarios, cfg.SubjectName = load(t), "fairlead"
	cfg.NewSubject = func() kit.Subject { return &kit.Fairlead{Binary: binary} }
	results, err := kit.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Run(r.Variant.Name(), func(t *testing.T) {
			if r.NotApplicable != "" {
				t.Skipf("not applicable in %s mode: %s", r.Mode, r.NotApplicable)
			}
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
}

func load(t *testing.T) []*kit.Scenario {
	t.Helper()
	all, err := kit.Load(scenarios.FS)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// agent is the binary to test: FAIRLEAD_BIN, or one built now.
func agent(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("FAIRLEAD_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "fairlead")
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "github.com/fairlead/fairlead/cmd/fairlead")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	return bin
}
