package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnit: systemd accepts the unit. The tests that start the agent with its command check that the command
// works.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(deployDir + "/systemd/fairlead.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Restart=always", "CapabilityBoundingSet=CAP_NET_ADMIN", "NoNewPrivileges=yes", "WantedBy=multi-user.target"} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return // a machine without systemd, as CI's may be: only the lines above can be checked
	}
	unit := filepath.Join(t.TempDir(), "fairlead.service")
	here := strings.ReplaceAll(string(text), "/usr/local/bin/fairlead", agentBinary(t)) // systemd requires the program to exist
	if err := os.WriteFile(unit, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verify, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
