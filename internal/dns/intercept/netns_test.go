package intercept

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	fairdns "github.com/fairlead/fairlead/internal/dns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

const (
	agentEnv = "FAIRLEAD_TEST_DNS_AGENT"
	name     = "web.default.svc.cluster.local."
)

var (
	vips    = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")}
	local   = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{169, 254, 20, 10}), 53), netip.AddrPortFrom(netip.MustParseAddr("fd00:20::10"), 53)}
	ours    = netip.MustParseAddr("10.96.1.1") // what Fairlead says the name is
	theirs  = netip.MustParseAddr("10.96.9.9") // what the cluster's DNS says
	nothing = netip.Addr{}
)

// TestMain lets the test binary be the agent, a process of its own that can be killed.
func TestMain(m *testing.M) {
	if role := os.Getenv(agentEnv); role != "" {
		run := agent
		if role == "cleanup" {
			run = cleanup
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func agent() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := EnsureAddrs(local); err != nil {
		return err
	}
	store := fairdns.NewStore(fairdns.StoreConfig{PodRanges: podRanges()})
	key := model.ServiceKey{Namespace: "default", Name: "web"}
	store.Apply([]model.Event{{Service: &model.Keyed[model.ServiceKey, model.Service]{Key: key, Value: &model.Service{Key: key, ClusterIPs: []netip.Addr{ours}}}}})
	srv, err := fairdns.New(fairdns.Config{Addrs: local, Intercepted: Servers(local), Store: store})
	if err != nil {
		return err
	}
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return err
	}
	i := New(Config{Kernel: kernelFor(k), Fit: fitness, Servers: Servers(local), VIPs: func() []netip.Addr { return vips }, Question: "_status.cluster.local."})
	var wg sync.WaitGroup
	serving, end := i.Outlive(ctx)
	defer end()
	wg.Go(func() { err = srv.Run(serving) })
	<-srv.Ready()
	if e := i.Run(ctx); e != nil {
		return e
	}
	wg.Wait()
	return err
}

// modes are the ways in which a Service's address is redirected to the cluster's DNS.
var modes = map[string]func(vip, backend netip.Addr) [][]string{
	"nftables": func(vip, backend netip.Addr) [][]string {
		f := map[bool]string{true: "ip", false: "ip6"}[vip.Is4()]
		chain := "{ type nat hook prerouting priority -100; }"
		cmds := [][]string{{"nft", "add", "table", f, "svc"}, {"nft", "add", "chain", f, "svc", "pre", chain}}
		for _, proto := range []string{"udp", "tcp"} {
			cmds = append(cmds, strings.Fields(fmt.Sprintf("nft add rule %s svc pre %s daddr %s %s dport 53 dnat to %s", f, f, vip, proto, backend)))
		}
		return cmds
	},
	"iptables-legacy": func(vip, backend netip.Addr) [][]string { return iptables("-legacy", vip, backend) },
	"iptables-nft":    func(vip, backend netip.Addr) [][]string { return iptables("-nft", vip, backend) },
}

func iptables(backendName string, vip, backend netip.Addr) (cmds [][]string) {
	prog := "iptables" + backendName
	if !vip.Is4() {
		prog = "ip6tables" + backendName
	}
	for _, proto := range []string{"udp", "tcp"} {
		cmds = append(cmds, strings.Fields(fmt.Sprintf("%s -w -t nat -A PREROUTING -d %s -p %s --dport 53 -j DNAT --to-destination %s", prog, vip, proto, backend)))
	}
	return cmds
}

// clusterDNS serves in a pod on the other node.
func clusterDNS(t *testing.T, pod *netlab.Host) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(req)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: theirs.AsSlice()}}
		_ = w.WriteMsg(m)
	})
	for _, ip := range []netip.Addr{pod.Addrs.V4, pod.Addrs.V6} {
		u, err := pod.ListenPacket(t.Context(), netip.AddrPortFrom(ip, 53))
		if err != nil {
			t.Fatal(err)
		}
		l, err := pod.Listen(t.Context(), netip.AddrPortFrom(ip, 53))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*dns.Server{{PacketConn: u, Handler: handler}, {Listener: l, Handler: handler}} {
			started := make(chan struct{})
			s.NotifyStartedFunc = func() { close(started) }
			go func() { _ = s.ActivateAndServe() }()
			<-started
			t.Cleanup(func() { _ = s.Shutdown() })
		}
	}
}

// looker is a pod that asks all the time, in one of the ways that resolvers have.
type looker struct {
	what string
	pod  *netlab.Host
	vip  netip.Addr
	tcp  bool
	keep bool // one UDP socket for ever, as some resolvers do

	mu     sync.Mutex
	conn   net.Conn
	failed int
	who    netip.Addr
}

func (l *looker) run(ctx context.Context) {
	for ctx.Err() == nil {
		who := l.once(ctx)
		l.mu.Lock()
		l.who = who
		if who == nothing && ctx.Err() == nil {
			l.failed++
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (l *looker) once(ctx context.Context) netip.Addr {
	network := "udp"
	if l.tcp {
		network = "tcp"
	}
	if l.conn == nil || !l.keep {
		dctx, cancel := context.WithTimeout(ctx, time.Second)
		conn, err := l.pod.Dial(dctx, network, netip.AddrPortFrom(l.vip, 53).String())
		cancel()
		if err != nil {
			return nothing
		}
		if l.conn != nil {
			_ = l.conn.Close()
		}
		l.conn = conn
	}
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	_ = l.conn.SetDeadline(time.Now().Add(time.Second))
	c := &dns.Conn{Conn: l.conn}
	if err := c.WriteMsg(m); err != nil {
		return nothing
	}
	for {
		r, err := c.ReadMsg()
		if err != nil {
			return nothing
		}
		if r.Id != m.Id {
			continue
		}
		if a, ok := r.Answer[0].(*dns.A); ok {
			ip, _ := netip.AddrFromSlice(a.A)
			return ip.Unmap()
		}
		return nothing
	}
}

func (l *looker) state() (who netip.Addr, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.who, l.failed
}

// answeredBy waits until every looker is answered by who. It returns how many
// lookups failed in that time at the worst looker.
func answeredBy(t *testing.T, what string, list []*looker, who netip.Addr) int {
	t.Helper()
	before := make([]int, len(list))
	for i, l := range list {
		_, before[i] = l.state()
	}
	start, worst := time.Now(), 0
	for i, l := range list {
		for {
			got, failed := l.state()
			if got == who {
				worst = max(worst, failed-before[i])
				break
			}
			if time.Since(start) > patience.Of(30*time.Second) {
				t.Fatalf("%s: %s is answered %v, want %v", what, l.what, got, who)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Logf("%s: all within %.2fs, at most %d look-ups lost of one client", what, time.Since(start).Seconds(), worst)
	return worst
}

func TestPackets(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("needs root, for network namespaces")
	}
	for mode, rules := range modes {
		t.Run(mode, func(t *testing.T) { testMode(t, rules) })
	}
}

func testMode(t *testing.T, rules func(vip, backend netip.Addr) [][]string) {
	lab, err := netlab.New(t.Context(), netlab.Config{PodsPerNode: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	host := func(name string) *netlab.Host {
		h, err := lab.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	node, pod, other := lab.Node(), host("pod-a1"), host("pod-b1")
	clusterDNS(t, other)
	for _, vip := range vips {
		for _, cmd := range rules(vip, other.Addrs.Of(vip)) {
			in(t, node, cmd...)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	var list []*looker
	for _, vip := range vips {
		list = append(list, lookersOf(pod, vip)...)
	}
	for _, l := range list {
		wg.Go(func() { l.run(ctx) })
	}
	drive(t, node, list)
}

// drive takes the agent through its life.
func drive(t *testing.T, node *netlab.Host, list []*looker) {
	answeredBy(t, "no agent", list, theirs)
	p := start(t, node)
	if n := answeredBy(t, "agent starts", list, ours); n > 1 { // a TCP connection that is being made is reset
		t.Errorf("%d look-ups were lost", n)
	}
	// The listing must not make nft stumble; 1.0.6 does over what it cannot print.
	if text := in(t, node, "nft", "list", "table", "ip6", tableName); !strings.Contains(text, "ip6 daddr @alive udp dport 53 socket transparent 1 notrack ip6 daddr set fd00:20::10 udp dport set 10053 accept") {
		t.Errorf("got %s", text)
	}
	in(t, node, "nft", "delete", "table", "ip", tableName)
	answeredBy(t, "table removed by somebody", list[:3], theirs)
	answeredBy(t, "table repaired", list, ours)
	p.Kill()
	if n := answeredBy(t, "kill -9", list, theirs); n > 1 { // the one that was in flight
		t.Errorf("%d look-ups were lost", n)
	}
	p = start(t, node)
	answeredBy(t, "agent comes back", list, ours)
	if err := syscall.Kill(p.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	answeredBy(t, "agent hangs", list, theirs)
	if err := syscall.Kill(p.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	answeredBy(t, "agent goes on", list, ours)
	if err := syscall.Kill(p.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if n := answeredBy(t, "agent ends", list, theirs); n > 1 {
		t.Errorf("%d look-ups were lost", n)
	}
	<-p.Done()
	if left := in(t, node, "nft", "list", "tables"); strings.Contains(left, tableName) {
		t.Errorf("left behind: %s", left)
	}
}

func start(t *testing.T, node *netlab.Host) *netlab.Process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentEnv+"=1")
	cmd.Stderr = os.Stderr
	p, err := node.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func in(t *testing.T, h *netlab.Host, cmd ...string) string {
	t.Helper()
	out, err := h.Run(t.Context(), cmd[0], cmd[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
