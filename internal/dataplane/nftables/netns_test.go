package nftables

import (
	"os/exec"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// netns is a network namespace of a test's own.
type netns struct {
	*nft.Conn
	*netnstest.Namespace
}

// ownNetns moves the calling goroutine, for good, to a network namespace of its
// own.
func ownNetns(t testing.TB) *netns {
	t.Helper()
	n := &netns{Namespace: netnstest.Enter(t)}
	n.Conn = n.neighbour(t)
	return n
}

// neighbour is another program's connection to the same namespace.
func (n *netns) neighbour(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open(nft.Config{NetNS: n.FD()})
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
	err := n.Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}
