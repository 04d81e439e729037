package takeover_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// modes are the modes of the kit: iptables with each of its two backends.
var modes = []string{"nftables", "iptables-nft", "iptables-legacy"}

// newLab creates a lab that is closed at the end of the test.
func newLab(t *testing.T) *netlab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the lab makes network namespaces and needs root: run `make test` as root")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
	})
	return lab
}

// binary returns the path of the agent to test: FAIRLEAD_BIN, or one that it builds.
func binary(t *testing.T) string {
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

// start runs the agent until the test ends. It returns when the agent is in sync.
func start(t *testing.T, bin string, s kit.Setup) *kit.Fairlead {
	t.Helper()
	agent := &kit.Fairlead{Binary: bin}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the agent in %s mode:\n%s", s.Mode, agent.Log())
		}
	})
	if err := agent.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return agent
}
