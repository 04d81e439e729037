package app

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What users run must not know of the faults that tests ask for, and what the
// fault runs use must.
func TestShippedBinaryMakesNoFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the agent twice") // only under -short; make test does not ask for that
	}
	for tag, want := range map[string]bool{"": false, "faults": true} {
		binary := filepath.Join(t.TempDir(), "fairlead")
		out, err := exec.Command("go", "build", "-tags", tag, "-o", binary, "../../cmd/fairlead").CombinedOutput()
		if err != nil {
			t.Fatalf("build with tags %q: %v\n%s", tag, err, out)
		}
		text, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), "FAIRLEAD_"+"FAULTS"); got != want {
			t.Errorf("built with tags %q, the binary knows the variable: %t", tag, got)
		}
	}
}
