package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// ownTable opens the table in a network namespace of the test's own, to which the
// test's goroutine moves for good.
func ownTable(t testing.TB) *Conn {
	t.Helper()
	return onFaultySockets(t, nil)
}

// onFaultySockets does the same with something in front of each socket.
func onFaultySockets(t testing.TB, wrap func(netlink.Wire) netlink.Wire) *Conn {
	t.Helper()
	netnstest.Enter(t)
	c, err := Open(Config{Wrap: wrap})
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
		first := c.nl.Reserve(n)
		for i := range flows[:n] {
			var flags uint16
			if i == n-1 {
				flags = unix.NLM_F_ACK
			}
			x := &flows[i]
			e.message(header{msgNew, unix.NLM_F_CREATE | unix.NLM_F_EXCL | flags, first + uint32(i), x.Family}, func() {
				e.tuple(ctaTupleOrig, x.Protocol, x.Orig, nil)
				e.tuple(ctaTupleReply, x.Protocol, x.Reply, nil)
				e.be32(ctaTimeout, 600)
				if x.Replied {
					e.be32(ctaStatus, statusSeenReply|1<<3) // with IPS_CONFIRMED, which the kernel sets and no program may clear
				}
				if x.Zone != 0 {
					e.be16(ctaZone, x.Zone)
				}
			})
		}
		last := first + uint32(n) - 1
		err := c.nl.Ask(netlink.Question{First: first, Last: last, Data: [][]byte{e.b}}, func(m netlink.Message) bool {
			if m.Errno() != 0 {
				t.Errorf("create flow %s: %v", &flows[m.Seq-first], m.Errno())
			}
			return m.Seq == last
		})
		if err != nil {
			t.Fatalf("create flows: %v", err)
		}
		flows = flows[n:]
	}
}
