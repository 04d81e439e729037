package rootless

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// TestMain runs the tests in a network namespace of its own, because the demo uses fixed
// addresses. With the argument `backend`, this program is one of the demo's processes.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "backend" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if err := Serve(ctx, os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
		}
		return
	}
	os.Exit(netnstest.Main(m))
}

// TestDemo runs the demo and checks that every claim holds.
func TestDemo(t *testing.T) {
	bin := os.Getenv("FAIRLEAD_BIN")
	if bin == "" {
		bin = filepath.Join(t.TempDir(), "fairlead")
		cmd := exec.Command("go", "build", "-o", bin, "github.com/fairlead/fairlead/cmd/fairlead")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build the agent: %v\n%s", err, out)
		}
	}
	var out bytes.Buffer
	if err := Run(t.Context(), Config{Agent: bin, Self: "/proc/self/exe", Manifests: "../../examples/rootless", Out: &out}); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
}
