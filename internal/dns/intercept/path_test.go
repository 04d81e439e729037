package intercept

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/test/netlab"
)

// The settings that a test passes to the agent that it starts.
const (
	unfitEnv    = "FAIRLEAD_TEST_DNS_UNFIT"    // a file: while it exists the server is not fit
	podsEnv     = "FAIRLEAD_TEST_DNS_PODS"     // range of the pods
	noSocketEnv = "FAIRLEAD_TEST_DNS_NOSOCKET" // the kernel refuses the first batch, as one without nft_socket does
)

func fitness() error {
	if _, err := os.Stat(os.Getenv(unfitEnv)); err == nil {
		return errors.New("made unfit by the test")
	}
	return nil
}

func podRanges() []netip.Prefix {
	if text := os.Getenv(podsEnv); text != "" {
		return []netip.Prefix{netip.MustParsePrefix(text)}
	}
	return nil
}

// refusing is a real kernel that refuses the first transaction.
type refusing struct {
	nft.Kernel
	refused bool
}

func (k *refusing) Commit(ctx context.Context, b *nft.Batch) (nft.Generation, error) {
	if !k.refused {
		k.refused = true
		return 0, unix.EOPNOTSUPP
	}
	return k.Kernel.Commit(ctx, b)
}

func kernelFor(k nft.Kernel) nft.Kernel {
	if os.Getenv(noSocketEnv) != "" {
		return &refusing{Kernel: k}
	}
	return k
}

// bench is two nodes, a pod that asks all the time, and the agent's log.
type bench struct {
	node, pod *netlab.Host
	list      []*looker
	log       string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("needs root, for network namespaces")
	}
	lab, err := netlab.New(t.Context(), netlab.Config{PodsPerNode: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	pod, err := lab.Host("pod-a1")
	if err != nil {
		t.Fatal(err)
	}
	other, err := lab.Host("pod-b1")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{node: lab.Node(), pod: pod, log: filepath.Join(t.TempDir(), "log")}
	clusterDNS(t, other)
	for _, vip := range vips {
		for _, cmd := range modes["nftables"](vip, other.Addrs.Of(vip)) {
			in(t, b.node, cmd...)
		}
		b.list = append(b.list, lookersOf(pod, vip)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for _, l := range b.list {
		wg.Go(func() { l.run(ctx) })
	}
	return b
}

func (b *bench) start(t *testing.T, env ...string) *netlab.Process {
	t.Helper()
	f, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), agentEnv+"=1"), env...)
	cmd.Stderr = f
	p, err := b.node.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// said waits until the agent's log has the text.
func (b *bench) said(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) { // bounded poll
		log, err := os.ReadFile(b.log)
		if err == nil && bytes.Contains(log, []byte(text)) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not in the log (%v):\n%s", text, err, log)
		}
	}
}

// TestFirewall: a host firewall that drops what pods send to the server, and lets
// the node's own packets pass, ends the interception.
func TestFirewall(t *testing.T) {
	b := newBench(t)
	b.start(t)
	answeredBy(t, "agent starts", b.list, ours)
	b.said(t, "DNS queries are intercepted")
	for _, rule := range []string{
		"add table inet host", "add chain inet host input { type filter hook input priority 0; policy drop; }",
		"add rule inet host input iifname lo accept", "add rule inet host input ct state established,related accept",
		"add rule inet host input meta l4proto icmpv6 accept", "add rule inet host input udp dport 53 accept", "add rule inet host input tcp dport 53 accept",
	} {
		in(t, b.node, append([]string{"nft"}, rule)...)
	}
	answeredBy(t, "firewall", b.list, theirs)
	b.said(t, errPath.Error())
	in(t, b.node, "nft", "delete", "table", "inet", "host")
	answeredBy(t, "no firewall", b.list, ours)
}

// TestUnfit: a server that answers, and is not fit for other reasons, gets nothing.
func TestUnfit(t *testing.T) {
	b := newBench(t)
	flag := filepath.Join(t.TempDir(), "unfit")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start(t, unfitEnv+"="+flag)
	b.said(t, "made unfit by the test")
	answeredBy(t, "not fit at the start", b.list, theirs)
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	answeredBy(t, "fit", b.list, ours)
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := answeredBy(t, "not fit any more", b.list, theirs); n > 1 {
		t.Errorf("%d look-ups were lost", n)
	}
}

// TestNoSocketExpression: without nft_socket the element's life alone decides.
func TestNoSocketExpression(t *testing.T) {
	b := newBench(t)
	p := b.start(t, noSocketEnv+"=1")
	answeredBy(t, "agent starts", b.list, ours)
	b.said(t, "no nft_socket")
	if text := in(t, b.node, "nft", "list", "table", "ip", tableName); strings.Contains(text, "socket transparent") {
		t.Errorf("got %s", text)
	}
	p.Kill()
	answeredBy(t, "kill -9", b.list, theirs)
}

// TestDirect: the port of redirected queries takes nothing else, and a pod that
// asks the server itself must be known as a pod.
func TestDirect(t *testing.T) {
	b := newBench(t)
	p := b.start(t)
	answeredBy(t, "agent starts", b.list, ours)
	ask := func(to netip.AddrPort) (*dns.Msg, error) {
		conn, err := b.pod.Dial(t.Context(), "udp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		m := new(dns.Msg)
		m.SetQuestion(name, dns.TypeA)
		c := dns.Client{Timeout: 30 * time.Second}
		r, _, err := c.ExchangeWithConn(m, &dns.Conn{Conn: conn})
		return r, err
	}
	for _, server := range Servers(local) {
		b.silent(t, server)
	}
	for _, server := range local {
		if r, err := ask(server); err != nil || r.Rcode != dns.RcodeRefused {
			t.Errorf("%s: got %v, %v", server, r, err)
		}
	}
	p.Kill()
	answeredBy(t, "kill -9", b.list, theirs)
	b.start(t, podsEnv+"="+netip.PrefixFrom(b.pod.Addrs.V4, 32).String())
	answeredBy(t, "agent comes back", b.list, ours)
	if r, err := ask(local[0]); err != nil || len(r.Answer) != 1 {
		t.Errorf("a pod of a known range: got %v, %v", r, err)
	}
}

// silent asks a server from a socket that takes answers from any address, and
// expects none.
func (b *bench) silent(t *testing.T, server netip.AddrPort) {
	t.Helper()
	from := b.pod.Addrs.Of(server.Addr())
	conn, err := b.pod.ListenPacket(t.Context(), netip.AddrPortFrom(from, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	query, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WriteTo(query, net.UDPAddrFromAddrPort(server)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	if n, from, err := conn.ReadFrom(make([]byte, 512)); err == nil {
		t.Errorf("%s answers a pod directly: %d bytes from %s", server, n, from)
	}
}

func cleanup() error {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return err
	}
	return Cleanup(context.Background(), k)
}

// TestCleanup: after a crash no table and no device is left.
func TestCleanup(t *testing.T) {
	b := newBench(t)
	p := b.start(t)
	answeredBy(t, "agent starts", b.list, ours)
	p.Kill()
	for range 2 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), agentEnv+"=cleanup")
		cmd.Stderr = os.Stderr
		p, err := b.node.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
	}
	left := in(t, b.node, "ip", "link") + in(t, b.node, "nft", "list", "tables")
	for _, text := range []string{podDevice, askDevice, tableName} {
		if strings.Contains(left, text) {
			t.Errorf("%s is left:\n%s", text, left)
		}
	}
}

// TestFrames: what is packed is read back, whatever its length.
func TestFrames(t *testing.T) {
	for _, vip := range vips {
		for n := range 40 {
			d := datagram{netip.AddrPortFrom(asker(vip), 1234), netip.AddrPortFrom(vip, 53), bytes.Repeat([]byte{0xab}, n)}
			got, ok := readDatagram(d.frame(askerMAC(), askerMAC()))
			if !ok || got.from != d.from || got.to != d.to || !bytes.Equal(got.data, d.data) {
				t.Fatalf("%d bytes: got %v", n, got)
			}
		}
	}
}

// FuzzReadDatagram: no frame of a neighbour makes the reader fail.
func FuzzReadDatagram(f *testing.F) {
	for _, vip := range vips {
		d := datagram{netip.AddrPortFrom(asker(vip), 1234), netip.AddrPortFrom(vip, 53), []byte("data")}
		f.Add(d.frame(askerMAC(), askerMAC()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := readDatagram(b); ok && len(d.data) > len(b) {
			t.Fatal("longer than the frame")
		}
	})
}
