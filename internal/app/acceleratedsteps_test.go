package app

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/test/flowlab"
	scaled "github.com/fairlead/fairlead/test/patience"
)

// shortOnesLeaveItAsleep: connections that end early are never taken over, and the fast path has no device for them.
func (n *acceleratedNode) shortOnesLeaveItAsleep() {
	n.Helper()
	for range 20 {
		s := n.Dial("tcp", "10.96.0.1:53")
		if s.Ask(2); s.Offloaded() {
			n.Error("a short connection is taken over")
		}
		_ = s.Close() // it ends here, whatever it says
	}
	time.Sleep(3 * wakeLook) // that no device comes cannot be waited for: the waker has looked at least twice by then
	if got, err := n.devices(); got != "" || err != nil {
		n.Errorf("after short connections alone the fast path has the devices %q, %v", got, err)
	}
}

// longOnesWakeIt: connections of more packets give the fast path its devices, and go by it. An answer comes from where it came before.
func (n *acceleratedNode) longOnesWakeIt() (streams []flowlab.Stream) {
	n.Helper()
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		streams = append(streams, n.Dial("tcp", addr), n.Dial("udp", addr))
	}
	streams = append(streams, n.Dial("tcp", "10.2.0.1:30080"))
	for _, s := range streams {
		n.takenAfter(20, s)
	}
	n.wantDevices("with a long connection", "c0 s0")
	for i, s := range streams {
		_, before := s.Ask(1)
		n.fast("at first", s)
		_, after := s.Ask(1)
		want := map[bool]string{true: "fd02::2", false: "10.2.0.2"}[strings.Contains(s.Addr, "[")]
		if i == len(streams)-1 {
			want = "10.1.0.254" // masqueraded
		}
		if before != want || after != want {
			n.Errorf("%s %s: the endpoint has seen %s, and on the fast path %s; want %s", s.Network, s.Addr, before, after, want)
		}
	}
	return streams
}

// takenAfter: it is taken over by the first packet above so many, not before and not later.
func (n *acceleratedNode) takenAfter(packets uint64, s flowlab.Stream) {
	n.Helper()
	for range packets {
		s.Ask(1)
		eventually(n.T, fmt.Sprintf("%s %s is taken over after %d packets", s.Network, s.Addr, packets), func() error {
			if f, ok := s.Flow(); !ok || f.Offloaded != (f.Packets > packets) { // a packet may be counted and not have passed the rules yet
				return fmt.Errorf("after %d packets on the fast path: %v", f.Packets, f.Offloaded)
			}
			return nil
		})
	}
}

// rulesHoldAsWithout: source ranges and affinity are for new connections, whatever is on the fast path.
func (n *acceleratedNode) rulesHoldAsWithout() {
	n.Helper()
	guarded, sticky := n.Dial("tcp", "10.97.0.2:80"), n.Dial("tcp", "10.96.0.3:80")
	n.fast("with source ranges, and with affinity", guarded, sticky)
	n.from = "192.0.2.0/24"
	n.write()
	eventually(n.T, "the client may not ask any more", func() error {
		if n.dial("10.97.0.2:80") == nil {
			return fmt.Errorf("a new connection is made")
		}
		return nil
	})
	n.fast("outside the new source ranges, begun before", guarded)
	n.from = "10.2.0.0/24"
	n.write()
	eventually(n.T, "the client may ask again", func() error { return n.dial("10.97.0.2:80") })
	end, _ := sticky.Ask(1)
	for range 12 {
		s := n.Dial("tcp", sticky.Addr)
		if at, _ := s.Ask(1); at != end {
			n.Errorf("with affinity a connection is at %s, and another of the same client at %s", end, at)
		}
		_ = s.Close() // it ends here, whatever it says
	}
}

// linksComeAndGo: the agent has the devices follow the links, and streams go on.
func (n *acceleratedNode) linksComeAndGo(streams []flowlab.Stream) {
	n.Helper()
	n.Run("ip link add x0 up type veth peer name x1", "ip link set x1 up")
	n.wantDevices("with two links more", "c0 s0 x0 x1")
	n.fast("with two links more", streams...)
	n.Run("ip link set x0 down", "ip link set x0 name x2", "ip link set x2 up")
	n.wantDevices("with a link that has another name", "c0 s0 x1 x2")
	n.Run("ip link del x1")
	n.wantDevices("without them", "c0 s0")
	n.fast("without them", streams...)
	n.RecreateLink()
	n.wantDevices("with the client's link made anew", "c0 s0")
	n.fast("with the client's link made anew", streams...)
}

// linkTakesLess: the MTU of a link becomes smaller while a connection is on the fast path. Its large packets are cut to size, the sender is
// told, and answers come. Linux 6.1 by itself sends them as they are.
func (n *acceleratedNode) linkTakesLess() {
	n.Helper()
	const mtu = 1300
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		tcp, udp := n.Dial("tcp", addr), n.Dial("udp", addr)
		n.fast("with full packets", tcp, udp)
		n.Run(fmt.Sprint("ip link set s0 mtu ", mtu))
		eventually(n.T, "large packets to "+addr+" are cut", func() error {
			seen := n.Sniff()
			defer seen.Stop()
			if !udp.AskWith(1400) || seen.Largest() > mtu {
				return fmt.Errorf("a packet of %d bytes has come to the endpoint", seen.Largest())
			}
			return nil
		})
		for _, size := range []int{1400, 4000} {
			for _, s := range []flowlab.Stream{tcp, udp} {
				eventually(n.T, fmt.Sprintf("an answer to %d bytes by %s to %s", size, s.Network, addr), func() error {
					if !s.AskWith(size) {
						return fmt.Errorf("there is none")
					}
					return nil
				})
			}
		}
		n.fast("with smaller packets", tcp, udp)
		n.Run("ip link set s0 mtu 1500")
	}
}

// isKilled: what is on the fast path stays there without an agent, and the next one writes nothing.
func (n *acceleratedNode) isKilled() {
	n.Helper()
	tcp, udp := n.Dial("tcp", "10.96.0.1:53"), n.Dial("udp", "[fd96::1]:53")
	n.fast("before the agent is killed", tcp, udp)
	before := n.Forwarded()
	both := []*flowlab.Pump{tcp.Pump(5 * time.Millisecond), udp.Pump(5 * time.Millisecond)}
	_ = n.agent.cmd.Process.Kill()
	n.agent.code()
	n.begin("20")
	time.Sleep(2 * wakeLook) // that nothing is written cannot be waited for: the waker has looked by then
	if got := n.operations(); got != "0" {
		n.Errorf("after it was killed, an agent writes %s objects", got)
	}
	passed, carried := n.Forwarded()-before, uint64(0)
	for _, p := range both {
		f, _ := p.Flow()
		carried += f.Packets
		if answer, err := p.Last(); answer == "" || err != nil || !p.Offloaded() {
			n.Errorf("%s %s, while the agent was killed and started: %q, %v, on the fast path: %v", p.Network, p.Addr, answer, err, p.Offloaded())
		}
		_ = p.Close() // it ends here, whatever it says
	}
	if passed*10 > carried { // a change of routes gives some back for a moment
		n.Errorf("%d of %d packets left the fast path while the agent was killed and started", passed, carried)
	}
}

// thresholdsChange: that of a Service live; that of the node with a restart, in one object for each family, and streams that are on the
// fast path stay there.
func (n *acceleratedNode) thresholdsChange() {
	n.Helper()
	for _, own := range []struct {
		threshold string
		asks      int
		offloaded bool
	}{{"5", 4, true}, {"off", 60, false}} {
		n.own = own.threshold
		n.write()
		eventually(n.T, "sticky has the threshold "+own.threshold, func() error {
			s := n.Dial("tcp", "10.96.0.3:80")
			defer s.Close() //nolint:errcheck // it ends here, whatever it says
			if s.Ask(own.asks); s.Offloaded() != own.offloaded {
				return fmt.Errorf("after %d questions on the fast path: %v", own.asks, s.Offloaded())
			}
			return nil
		})
	}
	old := n.Dial("tcp", "10.96.0.1:53")
	n.fast("by the old threshold", old)
	n.agent.terminate()
	n.begin("30")
	if got := n.operations(); got != "2" {
		n.Errorf("another threshold writes %s objects", got)
	}
	if !old.Offloaded() {
		n.Error("another threshold takes a connection from the fast path")
	}
	n.takenAfter(30, n.Dial("udp", "[fd96::1]:53"))
}

// losesEndpoint: an endpoint goes, and its streams leave it: the client of TCP is told, that of UDP is moved.
func (n *acceleratedNode) losesEndpoint() {
	n.Helper()
	seen := n.Sniff()
	var pumps []*flowlab.Pump
	for _, addr := range []string{"10.96.0.1:53", "[fd96::1]:53"} {
		for _, network := range []string{"tcp", "udp"} {
			s := n.Dial(network, addr)
			n.fast("before the endpoint goes", s)
			pumps = append(pumps, s.Pump(5*time.Millisecond))
		}
	}
	n.end = "2"
	at := n.write()
	for _, p := range pumps {
		eventually(n.T, p.Network+" "+p.Addr+" leaves the endpoint", func() error {
			answer, err := p.Last()
			if p.Network == "tcp" && err != nil || p.Network == "udp" && strings.Contains(answer, "1::2]") || strings.HasPrefix(answer, "10.1.0.2:") {
				return nil
			}
			return fmt.Errorf("%q, %v", answer, err)
		})
	}
	for _, to := range []string{"10.1.0.1", "fd01::1"} {
		for _, protocol := range []byte{6, 17} {
			_, last := seen.Of(protocol, to)
			n.Logf("last packet of protocol %d to %s: %v after the change", protocol, to, last.Sub(at))
			if late := last.Sub(at); late > scaled.Of(100*time.Millisecond) {
				n.Errorf("protocol %d: the last packet to %s comes %s after the change", protocol, to, late)
			}
		}
	}
}

// isSwitchedOff: an agent without acceleration takes all of it away, and streams go the usual way.
func (n *acceleratedNode) isSwitchedOff() {
	n.Helper()
	s := n.Dial("tcp", "10.96.0.1:53")
	n.fast("before acceleration is switched off", s)
	n.agent.terminate()
	n.begin("")
	if got, err := n.devices(); err == nil {
		n.Errorf("acceleration is off, and there is a flowtable with the devices %q", got)
	}
	if !s.Slow() {
		n.Errorf("acceleration is off, and %s %s is on the fast path", s.Network, s.Addr)
	}
}
