package scenarios_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// asNobody says that this is the process without privilege, and where the agent is.
const asNobody = "FAIRLEAD_TEST_AS_NOBODY"

// rootlessPart is what shows each side of userspace mode; `make conformance
// MODE=userspace` runs all.
const rootlessPart = `^(userspace-|beyond-weights|beyond-consistent-hash|loadbalancer-source-ranges-details|session-affinity-when|` +
	`services-should-be-rejected-when-no-endpoints|services-should-fallback-to-terminating-endpoints.*internal|services-should-respect-internal-traffic-policy-local-pod-to-pod)`

// TestScenariosRootless runs a part of the scenarios in userspace mode, as a user
// without any privilege.
func TestScenariosRootless(t *testing.T) {
	if bin := os.Getenv(asNobody); bin != "" {
		scenariosIn(t, kit.Config{Modes: []string{"userspace"}, Run: regexp.MustCompile(rootlessPart), Labs: 2}, bin)
		return
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"agent": agent(t), "test": "/proc/self/exe"} { // where nobody may read them
		program, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), program, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := filepath.Abs("../../scripts/rootless.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", script, filepath.Join(dir, "test"), "-test.v", "-test.run=^TestScenariosRootless$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asNobody+"="+filepath.Join(dir, "agent"), "TMPDIR=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
