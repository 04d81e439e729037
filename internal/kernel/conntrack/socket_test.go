package conntrack

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// TestAFaultCostsOneCall: whatever happens to whichever datagram of a call, that call ends, and the next one is as if nothing
// had been. A dump that went well is whole.
func TestAFaultCostsOneCall(t *testing.T) {
	faults := &netlink.Faults{}
	c := onFaultySockets(t, faults.Wrap)
	create(t, c, manyFlows(1000))
	absent := slices.Clone(samples) // none of them is there
	want := dump(t, c, Filter{})
	calls := map[string]func() error{
		"flows": func() error {
			n := 0
			err := c.Flows(t.Context(), Filter{Family: IPv4, Protocol: unix.IPPROTO_UDP}, func(Flow) { n++ })
			if err == nil && n != len(want) {
				t.Errorf("a dump of %d flows gave %d without an error", len(want), n)
			}
			return err
		},
		"delete": func() error {
			n, err := c.Delete(t.Context(), absent)
			if n != 0 {
				t.Errorf("%d deleted of nothing", n)
			}
			return err
		},
	}
	for name, call := range calls {
		for _, fault := range netlink.EveryFault() {
			for at := range 4 {
				once := func(n int) netlink.Fault {
					if n == at {
						return fault
					}
					return netlink.None
				}
				plans := [][2]func(int) netlink.Fault{{once, nil}, {nil, once}}
				if at == 0 {
					always := func(int) netlink.Fault { return fault }
					plans = append(plans, [2]func(int) netlink.Fault{always, nil}, [2]func(int) netlink.Fault{nil, always})
				}
				for _, plan := range plans {
					faults.Plan(plan[0], plan[1])
					err := call()
					if _, sent, received := faults.Calls(); sent+received > 300 {
						t.Errorf("%s with %s: sent %d times, received %d times", name, fault, sent, received)
					}
					faults.Plan(nil, nil)
					if now := dump(t, c, Filter{}); !slices.Equal(now, want) {
						t.Fatalf("after %s with %s at %d, which said %v, %d flows are read, want %d", name, fault, at, err, len(now), len(want))
					}
				}
			}
		}
	}
}

// TestADumpThatTheKernelCallsInconsistent returns valid flows, and reports that others may be missing.
func TestADumpThatTheKernelCallsInconsistent(t *testing.T) {
	faults := &netlink.Faults{}
	c := onFaultySockets(t, faults.Wrap)
	create(t, c, samples)
	faults.Plan(nil, func(n int) netlink.Fault {
		if n == 0 {
			return netlink.Inconsistent
		}
		return netlink.None
	})
	n := 0
	if err := c.Flows(t.Context(), Filter{}, func(Flow) { n++ }); !errors.Is(err, ErrInterrupted) || n != len(samples) {
		t.Errorf("%d flows, %v", n, err)
	}
	if got := dump(t, c, Filter{}); len(got) != len(samples) {
		t.Errorf("%d flows afterwards", len(got))
	}
	if opened, _, _ := faults.Calls(); opened != 1 {
		t.Errorf("%d sockets, want 1: nothing was wrong with it", opened)
	}
}
