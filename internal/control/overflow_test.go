package control

import (
	"os"
	"path/filepath"
	"testing"
)

// A user that is not mapped into the agent's user namespace is shown as nobody there, who may be the agent's own user: then any user of the host
// could ask the agent, and have its sockets handed over.
func TestOverflowUser(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	overflow := file("overflowuid", "65533\n")
	for _, c := range []struct {
		name, uidMap, overflow string
		uid                    int
		want                   bool
	}{
		{"on the host", file("map", "         0          0 4294967295\n"), overflow, 65533, false},
		{"in a container with its own users", file("map", "         0     100000      65536\n"), overflow, 65533, true},
		{"another user there", file("map", "         0     100000      65536\n"), overflow, 1000, false},
		{"the kernel's default ID", file("map", "0 100000 65536\n"), filepath.Join(t.TempDir(), "none"), 65534, true},
		{"a map that cannot be read", filepath.Join(t.TempDir(), "none"), overflow, 65533, true},
		{"another user, and a map that cannot be read", filepath.Join(t.TempDir(), "none"), overflow, 1000, false},
	} {
		if got := anyUser(c.uid, c.uidMap, c.overflow); got != c.want {
			t.Errorf("%s: user %d can be anybody: %v, want %v", c.name, c.uid, got, c.want)
		}
	}
}
