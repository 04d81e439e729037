package nfacct

import (
	"errors"
	"maps"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// TestAFaultCostsOneCall: whatever happens to a datagram, the call ends, and the next one is as if nothing had been.
func TestAFaultCostsOneCall(t *testing.T) {
	faults := &netlink.Faults{}
	c, _ := onFaultySockets(t, faults.Wrap)
	for _, name := range []string{"a", "b"} {
		if err := c.Ensure(name); err != nil {
			t.Fatal(err)
		}
	}
	want := list(t, c)
	calls := map[string]func() error{
		"ensure": func() error { return c.Ensure("a") },
		"read":   func() error { _, err := c.Read("b"); return err },
		"delete": func() error { return c.Delete("absent") },
		"list":   func() error { _, err := c.List(); return err },
	}
	for name, call := range calls {
		for _, fault := range netlink.EveryFault() {
			always := func(int) netlink.Fault { return fault }
			once := func(n int) netlink.Fault { return [2]netlink.Fault{fault}[min(n, 1)] }
			for i, plan := range [][2]func(int) netlink.Fault{{once, nil}, {nil, once}, {always, nil}, {nil, always}} {
				faults.Plan(plan[0], plan[1])
				err := call()
				answered := fault == netlink.Interrupted || fault == netlink.Exhausted && (name == "ensure" || name == "delete")
				if err == nil && !answered && !(i%2 == 0 && fault < netlink.Interrupted) {
					t.Errorf("%s does not notice the fault %q (%d)", name, fault, i)
				}
				if errors.Is(err, ErrUnsupported) || errors.Is(err, ErrNotFound) {
					t.Errorf("%s takes the fault %q for an answer: %v", name, fault, err)
				}
				if _, sent, received := faults.Calls(); sent+received > 300 {
					t.Errorf("%s with %s: sent %d times, received %d times", name, fault, sent, received)
				}
				faults.Plan(nil, nil)
				if now := list(t, c); !maps.Equal(now, want) {
					t.Errorf("after %s with %s (%d): %v", name, fault, i, now)
				}
			}
		}
	}
}
