package nftsave

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// large writes chains enough for some parts, one of which takes several datagrams.
func (h *host) large(f xt.Family) (want []string) {
	h.Helper()
	var lines []string
	for i := range 3 * sockets * partChains {
		lines = append(lines, fmt.Sprintf(":C-%d - [0:0]", i), fmt.Sprintf("-A C-%d -i eth%d -j RETURN", i, i))
	}
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("-A C-7 -p tcp -m tcp --dport %d -j RETURN", i+1))
	}
	h.restore(f, "nat", lines...)
	slices.Sort(lines)
	return lines
}

// TestFaultySockets: whatever fails, what is read is the whole, or there is an error, and the next reading goes well.
func TestFaultySockets(t *testing.T) {
	faults := &netlink.Faults{}
	h := newHost(t, Config{Wrap: faults.Wrap})
	want := h.large(xt.IPv4)
	_, sends, receives := calls(h, faults)
	for _, fault := range append(netlink.EveryFault(), netlink.Inconsistent) {
		failed := 0
		for _, at := range []int{0, 1, 2, 3, 5, 8, 13, sends / 2, sends - 2, sends - 1, receives / 2, receives - 1} {
			_, sent, received := faults.Calls()
			plan := func(from int) func(int) netlink.Fault {
				return func(call int) netlink.Fault {
					if call == from+at {
						return fault
					}
					return netlink.None
				}
			}
			faults.OnReceive = plan(received)
			if fault != netlink.Inconsistent && at < sends {
				faults.OnSend = plan(sent)
			}
			got, err := h.read(xt.IPv4, "nat", anyChain)
			faults.OnReceive, faults.OnSend = nil, nil
			if err != nil {
				failed++
			} else if !slices.Equal(got, want) {
				t.Errorf("%s at call %d: %d lines of %d, and no error", fault, at, len(got), len(want))
			}
			if got, err := h.read(xt.IPv4, "nat", anyChain); err != nil || !slices.Equal(got, want) {
				t.Fatalf("after %s at call %d: %d lines of %d, %v", fault, at, len(got), len(want), err)
			}
		}
		t.Logf("%s: %d readings failed", fault, failed)
		if fault == netlink.Inconsistent && failed > 0 {
			t.Errorf("%d readings failed that only had to be repeated", failed)
		}
	}
}

// calls counts those of one reading.
func calls(h *host, faults *netlink.Faults) (opened, sends, receives int) {
	_, s, r := faults.Calls()
	if _, err := h.read(xt.IPv4, "nat", anyChain); err != nil {
		h.Fatal(err)
	}
	opened, sends, receives = faults.Calls()
	return opened, sends - s, receives - r
}

// TestInterruptedForEver: a chain that is never listed in one piece ends the reading.
func TestInterruptedForEver(t *testing.T) {
	faults := &netlink.Faults{}
	h := newHost(t, Config{Wrap: faults.Wrap})
	h.large(xt.IPv4)
	_, _, before := faults.Calls()
	faults.OnReceive = func(call int) netlink.Fault {
		if call > before+2 { // from the listing of the chains on
			return netlink.Inconsistent
		}
		return netlink.None
	}
	if _, err := h.read(xt.IPv4, "nat", anyChain); !errors.Is(err, errInterrupted) {
		t.Error(err)
	}
}

// TestUnsettled: what is listed after a commit that may still be at work counts only once
// that has ended, also where it came in one datagram: what another would have had may be
// what is missing.
func TestUnsettled(t *testing.T) {
	h := newHost(t, Config{})
	h.restore(xt.IPv4, "nat", ":C - [0:0]", "-A C -j RETURN")
	d := h.dumpers[0]
	if err := d.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.restore(xt.IPv4, "nat", ":C - [0:0]", "-A C -j ACCEPT")
	for _, q := range []question{{unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, xt.IPv4, "nat", "C"}, {kind: unix.NFT_MSG_GETCHAIN, flags: unix.NLM_F_DUMP, family: xt.IPv4}} {
		before := d.settled
		if err := d.dump(t.Context(), q, func([]byte) {}); !errors.Is(err, errInterrupted) || d.settled == before {
			t.Errorf("%v, and %d is settled after %d", err, d.settled, before)
		}
		if err := d.dump(t.Context(), q, func([]byte) {}); err != nil {
			t.Error(err)
		}
		d.settled = before
	}
}

// TestChangedMeanwhile: each chain is read as a consistent snapshot.
func TestChangedMeanwhile(t *testing.T) {
	const chains, rules, writes = sockets * partChains, 150, 20
	h := newHost(t, Config{})
	state := func(port int) []string { // one transaction
		var lines []string
		for i := range chains {
			lines = append(lines, fmt.Sprintf(":C-%d - [0:0]", i))
		}
		for i := range chains {
			for range rules {
				lines = append(lines, fmt.Sprintf("-A C-%d -p tcp -m tcp --dport %d -j RETURN", i, port))
			}
		}
		return lines
	}
	h.restore(xt.IPv4, "nat", state(writes)...)
	done := make(chan error, 1)
	go func() {
		for i := range writes {
			if out, err := h.run("*nat\n"+strings.Join(state(i), "\n")+"\nCOMMIT\n", program(xt.IPv4, "-restore"), "--noflush"); err != nil {
				done <- fmt.Errorf("%w: %s", err, out)
				return
			}
		}
		done <- nil
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d readings beside %d writes", n, writes)
			h.same(xt.IPv4, "nat")
			return
		default:
		}
		ports, lines := map[string]string{}, map[string]int{}
		err := h.Read(t.Context(), Request{Family: xt.IPv4, Table: "nat", Ours: anyChain, Yield: wait}, func(line []byte) error {
			rule, isRule := strings.CutPrefix(string(line), "-A ")
			if !isRule {
				return nil
			}
			chain, rule, _ := strings.Cut(rule, " ")
			if ports[chain] == "" {
				ports[chain] = rule
			}
			if lines[chain]++; rule != ports[chain] {
				t.Errorf("%s has %q and %q", chain, ports[chain], rule)
			}
			return nil
		})
		if err != nil && !errors.Is(err, errInterrupted) {
			t.Fatal(err)
		}
		for chain, n := range lines {
			if err == nil && n != rules {
				t.Errorf("%s has %d rules", chain, n)
			}
		}
	}
}

// TestEndsEarly: a reading that is to end does, and the next one is whole.
func TestEndsEarly(t *testing.T) {
	h := newHost(t, Config{})
	want := h.large(xt.IPv6)
	enough := errors.New("enough")
	for _, after := range []int{0, 1, 50, len(want) - 1} {
		n := 0
		err := h.Read(t.Context(), Request{Family: xt.IPv6, Table: "nat", Ours: anyChain, Yield: wait}, func([]byte) error {
			if n++; n > after {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || n != after+1 {
			t.Errorf("%v after %d lines, not %d", err, n, after)
		}
		ctx, stop := context.WithCancel(t.Context())
		err = h.Read(ctx, Request{Family: xt.IPv6, Table: "nat", Ours: anyChain, Yield: func(context.Context) error { stop(); return nil }}, func([]byte) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v where the context ended", err)
		}
		err = h.Read(t.Context(), Request{Family: xt.IPv6, Table: "nat", Ours: anyChain, Yield: func(context.Context) error { return enough }}, func([]byte) error { return nil })
		if !errors.Is(err, enough) {
			t.Errorf("%v where Yield failed", err)
		}
		if got, err := h.read(xt.IPv6, "nat", anyChain); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d lines of %d, %v", len(got), len(want), err)
		}
	}
}
