package flowlab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Lab is the network: a client at 10.2.0.2 and fd02::2, and endpoints at [Ends], port 8080 of TCP and UDP.
type Lab struct {
	*testing.T
	Client, Server *netnstest.Namespace
	// Programs take a second each in an emulated machine, so what is looked at often is read by sockets.
	rules *nft.Conn
	flows *conntrack.Conn
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

// OnlyIfAskedFor skips a test that is too slow for `make test-all`.
func OnlyIfAskedFor(t *testing.T) {
	t.Helper()
	if os.Getenv("FAIRLEAD_VM_FULL") == "" {
		t.Skipf("dear in an emulated machine: FAIRLEAD_VM_FULL=1 RUN=%s make test-vm", t.Name())
	}
}

// New makes the namespace of the calling test, which is its own, the node, with a counter of the packets that pass the forward hook.
func New(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{T: t, Client: netnstest.New(t), Server: netnstest.New(t)}
	l.IP("link add s0 type veth peer name s1 netns "+at(l.Server), "addr add 10.1.0.254/24 dev s0", "addr add fd01::fe/64 dev s0 nodad",
		"link set lo up", "link set s0 up")
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+path, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	l.Feed("table inet seen { chain passed { type filter hook forward priority 200; counter; }; }", "nft", "-f", "-")
	l.addLink()
	l.In(l.Server, func() error {
		lines := []string{"link set s1 up"}
		for _, a := range Ends() {
			lines = append(lines, "addr add "+a+map[bool]string{true: "/64 dev s1 nodad", false: "/24 dev s1"}[strings.Contains(a, ":")])
		}
		l.IP(append(lines, "route add default via 10.1.0.254", "-6 route add default via fd01::fe")...)
		for _, a := range Ends() {
			if err := l.listen(net.JoinHostPort(a, "8080")); err != nil {
				return err
			}
		}
		return nil
	})
	var err, err2 error
	l.rules, err = nft.Open(nft.Config{})
	l.flows, err2 = conntrack.Open(conntrack.Config{})
	if err != nil || err2 != nil || l.Failed() {
		t.Fatal(err, err2)
	}
	t.Cleanup(func() { _, _ = l.rules.Close(), l.flows.Close() })
	return l
}

// addLink adds the client's link.
func (l *Lab) addLink() {
	l.Helper()
	l.IP("link add c0 type veth peer name c1 netns "+at(l.Client), "addr add 10.2.0.1/24 dev c0", "addr add fd02::1/64 dev c0 nodad", "link set c0 up")
	l.In(l.Client, func() error {
		l.IP("link set c1 up", "addr add 10.2.0.2/24 dev c1", "addr add fd02::2/64 dev c1 nodad",
			"route add default via 10.2.0.1", "-6 route add default via fd02::1")
		return nil
	})
}

// RecreateLink takes the client's link away and makes another one with the same names and addresses.
func (l *Lab) RecreateLink() {
	l.Helper()
	l.IP("link del c0")
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

// IP runs lines of the program ip, all by one process, in the namespace of the calling thread.
func (l *Lab) IP(lines ...string) {
	l.Helper()
	var v4, v6 []string
	for _, line := range lines {
		if rest, is := strings.CutPrefix(line, "-6 "); is {
			v6 = append(v6, rest)
		} else {
			v4 = append(v4, line)
		}
	}
	l.Feed(strings.Join(v4, "\n"), "ip", "-batch", "-")
	if len(v6) > 0 {
		l.Feed(strings.Join(v6, "\n"), "ip", "-6", "-batch", "-")
	}
}

// Feed runs a program that reads the text.
func (l *Lab) Feed(text string, words ...string) {
	l.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.Errorf("%v: %v: %s, of:\n%s", words, err, out, text)
	}
}

// In runs do in a namespace of the lab.
func (l *Lab) In(n *netnstest.Namespace, do func() error) {
	l.Helper()
	if err := n.Do(do); err != nil {
		l.Fatal(err)
	}
}
