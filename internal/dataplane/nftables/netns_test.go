package nftables

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// netns is a network namespace of a test's own.
type netns struct {
	*nft.Conn
	fd int
}

// ownNetns moves the calling goroutine, for good, to a network namespace of its
// own. It never lets a test run outside one.
func ownNetns(t testing.TB) *netns {
	t.Helper()
	before := netnsID(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("SKIPPED, not run: cannot make a network namespace: %v", err)
	}
	if now := netnsID(t); now == before {
		t.Fatalf("still in network namespace %s", now)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := nft.Open(nft.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = unix.Close(fd)
	})
	return &netns{c, fd}
}

// neighbour is another program's connection to the same namespace.
func (n *netns) neighbour(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open(nft.Config{NetNS: n.fd})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// nft runs the nft command in the namespace, from whatever goroutine.
func (n *netns) nft(t testing.TB, args ...string) string {
	t.Helper()
	var out []byte
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := unix.Setns(n.fd, unix.CLONE_NEWNET)
		if err == nil {
			out, err = exec.Command("nft", args...).CombinedOutput()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

func netnsID(t testing.TB) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}
