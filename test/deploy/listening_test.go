package deploy

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestListening: a default agent listens on loopback addresses, on the health port that kube-proxy has too, and on its control
// socket, and nowhere else.
func TestListening(t *testing.T) {
	m := newMachine(t)
	before := m.listening(t)
	m.startAgent(t)
	var control, health, metrics bool
	for _, at := range m.listening(t) {
		if slices.Contains(before, at) {
			continue
		}
		network, addr, _ := strings.Cut(at, " ")
		where, err := netip.ParseAddrPort(addr)
		switch {
		case network == "unix":
			control = control || addr == "@fairlead"
			if addr != "@fairlead" {
				t.Errorf("listens on %s", at)
			}
		case err != nil:
			t.Errorf("%s: %v", at, err)
		case where.Port() == 10256 && network == "tcp":
			health = true
		case !where.Addr().Unmap().IsLoopback():
			t.Errorf("listens on %s", at)
		default:
			metrics = metrics || where.Port() == 10249
		}
	}
	if !control || !health || !metrics {
		t.Errorf("not found: control socket %t, health %t, metrics %t, in %v", control, health, metrics, m.listening(t))
	}
}

// listening returns the sockets that accept connections or datagrams in the node's network namespace: "tcp 127.0.0.1:80",
// "unix @name".
func (m *machine) listening(t *testing.T) (all []string) {
	t.Helper()
	for _, network := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		text, err := m.lab.Node().Run(t.Context(), "cat", "/proc/net/"+network)
		if err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			f := strings.Fields(line)
			if i == 0 || len(f) < 4 {
				continue
			}
			proto := strings.TrimSuffix(network, "6")
			switch {
			case proto == "unix":
				const accepting = 1 << 16 // __SO_ACCEPTCON
				if flags, err := strconv.ParseUint(f[3], 16, 64); err == nil && flags&accepting != 0 && len(f) == 8 && strings.HasPrefix(f[7], "@") {
					all = append(all, "unix "+f[7])
				}
			case proto == "tcp" && f[3] == "0A", proto == "udp" && f[3] == "07": // TCP_LISTEN, and a UDP socket without a peer
				all = append(all, proto+" "+procAddr(t, f[1]).String())
			}
		}
	}
	return all
}

// procAddr reads an address of /proc/net: words of four bytes in the byte order of the machine, which is little-endian.
func procAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	addr, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(addr)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(b)%4 != 0 {
		t.Fatal(fmt.Errorf("the address %s", text))
	}
	for w := 0; w < len(b); w += 4 {
		slices.Reverse(b[w : w+4])
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(n))
}
