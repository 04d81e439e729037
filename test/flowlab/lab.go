package flowlab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/netnstest"
)

// Lab is the network: a client at 10.2.0.2 and fd02::2, and endpoints at [Ends], port 8080 of TCP and UDP.
type Lab struct {
	*testing.T
	Client, Server *netnstest.Namespace
}

// Ends are the addresses of the endpoints, two of each family.
func Ends() []string { return []string{"10.1.0.1", "10.1.0.2", "fd01::1", "fd01::2"} }

// Enter moves the test into a namespace of its own, and skips it if the kernel has no flowtables.
func Enter(t *testing.T) {
	t.Helper()
	netnstest.Enter(t)
	probe := exec.Command("nft", "add table inet probe; add flowtable inet probe f { hook ingress priority 0; }; delete table inet probe")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("needs a kernel with flowtables: %s", out) // test/vm/tests.txt has it run under one that does
	}
}

// New makes the namespace of the calling test, which is its own, the node, with a counter of the packets that pass the forward hook.
func New(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{T: t, Client: netnstest.New(t), Server: netnstest.New(t)}
	l.Run("ip link add s0 type veth peer name s1 netns "+at(l.Server), "ip addr add 10.1.0.254/24 dev s0", "ip addr add fd01::fe/64 dev s0 nodad",
		"ip link set lo up", "ip link set s0 up", "sysctl -qw net.ipv4.ip_forward=1", "sysctl -qw net.ipv6.conf.all.forwarding=1",
		"nft add table inet seen", "nft add chain inet seen passed { type filter hook forward priority 200; }", "nft add rule inet seen passed counter")
	l.addLink()
	l.In(l.Server, func() error {
		l.Run("ip link set s1 up")
		for _, a := range Ends() {
			l.Run("ip addr add " + a + map[bool]string{true: "/64", false: "/24"}[strings.Contains(a, ":")] + " dev s1" + map[bool]string{true: " nodad"}[strings.Contains(a, ":")])
			if err := l.listen(net.JoinHostPort(a, "8080")); err != nil {
				return err
			}
		}
		l.Run("ip route add default via 10.1.0.254", "ip -6 route add default via fd01::fe")
		return nil
	})
	if l.Failed() {
		l.FailNow()
	}
	return l
}

// addLink adds the client's link.
func (l *Lab) addLink() {
	l.Helper()
	l.Run("ip link add c0 type veth peer name c1 netns "+at(l.Client), "ip addr add 10.2.0.1/24 dev c0", "ip addr add fd02::1/64 dev c0 nodad", "ip link set c0 up")
	l.In(l.Client, func() error {
		l.Run("ip link set c1 up", "ip addr add 10.2.0.2/24 dev c1", "ip addr add fd02::2/64 dev c1 nodad",
			"ip route add default via 10.2.0.1", "ip -6 route add default via fd02::1")
		return nil
	})
}

// RecreateLink takes the client's link away and makes another one with the same names and addresses.
func (l *Lab) RecreateLink() {
	l.Helper()
	l.Run("ip link del c0")
	l.addLink()
}

func at(n *netnstest.Namespace) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD()) }

// Run runs commands in the namespace of the calling thread.
func (l *Lab) Run(lines ...string) {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			l.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

// In runs do in a namespace of the lab.
func (l *Lab) In(n *netnstest.Namespace, do func() error) {
	l.Helper()
	if err := n.Do(do); err != nil {
		l.Fatal(err)
	}
}
