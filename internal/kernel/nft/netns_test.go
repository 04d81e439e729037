package nft

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownNetns moves the test's goroutine, for good, to a network namespace of its own and returns a Conn in it. Children started
// by the goroutine (nft) run there too.
func ownNetns(t testing.TB) *Conn {
	t.Helper()
	netnstest.Enter(t)
	return another(t)
}

// another is a second Conn in the caller's namespace, which ownNetns made.
func another(t testing.TB) *Conn {
	t.Helper()
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// nftTool runs the nft command, in the namespace of the calling goroutine, with stdin as its script if it is not empty.
func nftTool(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft command")
	}
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}
