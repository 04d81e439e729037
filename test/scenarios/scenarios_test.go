package scenarios_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/proof"
	"github.com/fairlead/fairlead/test/scenarios"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// TestEveryScenarioReads expands every variant of every file, so that a misspelt word fails here, without a lab. It also checks the number of
// scenarios in the README.
func TestEveryScenarioReads(t *testing.T) {
	variants := 0
	all := load(t)
	for _, s := range all {
		variants += len(s.Variants())
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if counts := fmt.Sprintf("%d scenarios, %d variants", len(all), variants); !strings.Contains(string(readme), counts) {
		t.Errorf("README.md does not say %q", counts)
	}
}

// TestScenarios runs every scenario with real packets in each mode that programs this kernel, or only in FAIRLEAD_MODE. With -short it runs one
// variant in each mode. `make conformance` does the same and prints a matrix.
func TestScenarios(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	modes := []string{"nftables", "iptables-nft", "iptables-legacy"}
	if mode := os.Getenv("FAIRLEAD_MODE"); mode != "" {
		modes = []string{mode}
	}
	scenariosIn(t, kit.Config{Modes: modes}, agent(t))
}

// scenariosIn runs the scenarios against an agent, with one test for each variant in each mode.
func scenariosIn(t *testing.T, cfg kit.Config, binary string) {
	t.Helper()
	cfg.Scenarios, cfg.SubjectName, cfg.OneVariant = load(t), "fairlead", testing.Short()
	cfg.NewSubject = func() kit.Subject { return &kit.Fairlead{Binary: binary} }
	before := netlab.Requests()
	results, err := kit.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	passed := map[string]int{}
	for _, r := range results {
		t.Run(r.Mode+"/"+r.Variant.Name(), func(t *testing.T) {
			if r.NotApplicable != "" {
				t.Skipf("not applicable in %s mode: %s", r.Mode, r.NotApplicable)
			}
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
		if r.Passed() {
			passed[r.Mode]++
		}
	}
	for mode, n := range passed {
		proof.Count(t, n, "scenario variants in "+mode+" mode")
	}
	proof.Count(t, int(netlab.Requests()-before), "requests through a kernel")
}

func load(t *testing.T) []*kit.Scenario {
	t.Helper()
	all, err := kit.Load(scenarios.FS)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// agent returns the path of the binary to test: FAIRLEAD_BIN, or one that it builds.
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
