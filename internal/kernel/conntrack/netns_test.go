package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownTable opens the table in a network namespace of the test's own, to which the
// test's goroutine moves for good.
func ownTable(t testing.TB) *Conn {
	t.Helper()
	netnstest.Enter(t)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// create puts flows into the kernel's table.
func create(t testing.TB, c *Conn, flows []Flow) {
	t.Helper()
	for len(flows) > 0 {
		n := min(len(flows), deleteChunk)
		e := encoder{}
		for i := range flows[:n] {
			c.seq++
			var flags uint16
			if i == n-1 {
				flags = unix.NLM_F_ACK
			}
			x := &flows[i]
			e.message(header{msgNew, unix.NLM_F_CREATE | unix.NLM_F_EXCL | flags, c.seq, x.Family}, func() {
				e.tuple(ctaTupleOrig, x.Protocol, x.Orig, nil)
				e.tuple(ctaTupleReply, x.Protocol, x.Reply, nil)
				e.be32(ctaTimeout, 600)
				if x.Zone != 0 {
					e.be16(ctaZone, x.Zone)
				}
			})
		}
		if err := c.send(e.b); err != nil {
			t.Fatal(err)
		}
		if err := c.answers(func(m message) {}); err != nil {
			t.Fatalf("create flows: %v", err)
		}
		flows = flows[n:]
	}
}
