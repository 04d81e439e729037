package scenarios_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fairlead/fairlead/test/scenarios/kit"
)

// asNobody is the environment variable that marks the unprivileged process. Its value is
// the path of the agent.
const asNobody = "FAIRLEAD_TEST_AS_NOBODY"

var proofs = regexp.MustCompile(`(proof: .+)`)

// TestScenariosRootless runs the scenarios in userspace mode, as a user without any
// privilege.
func TestScenariosRootless(t *testing.T) {
	if bin := os.Getenv(asNobody); bin != "" {
		scenariosIn(t, kit.Config{Modes: []string{"userspace"}}, bin)
		return
	}
	dir := t.TempDir()
	for name, from := range map[string]string{"agent": agent(t), "test": "/proc/self/exe"} { // in a folder that an unprivileged user may read
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
	cmd := exec.Command("bash", script, filepath.Join(dir, "test"), "-test.v", "-test.run=^TestScenariosRootless$", fmt.Sprint("-test.short=", testing.Short()))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asNobody+"="+filepath.Join(dir, "agent"), "TMPDIR=/tmp")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range proofs.FindAllSubmatch(out, -1) {
		t.Log(string(line[1])) // output of the unprivileged process
	}
}
