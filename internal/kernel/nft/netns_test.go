package nft

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ownNetns moves the test's goroutine, for good, to a network namespace of its own and returns a Conn in it. Children started
// by the goroutine (nft) run there too. Without the right to make one the test is skipped; it never runs outside one.
func ownNetns(t testing.TB) *Conn {
	t.Helper()
	before := netnsID(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("cannot make a network namespace: %v", err)
	}
	after := netnsID(t)
	if init, err := os.Readlink("/proc/1/ns/net"); after == before || err == nil && after == init {
		t.Fatalf("still in network namespace %s", after)
	}
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
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

func netnsID(t testing.TB) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
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
