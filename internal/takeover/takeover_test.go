package takeover

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// bed is a network namespace of a test's own, and Kernels in it.
type bed struct {
	t    *testing.T
	ns   *netnstest.Namespace
	lock string
	k    Kernels
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, ns: netnstest.New(t), lock: filepath.Join(t.TempDir(), "xtables.lock")}
	tables, err := nft.Open(nft.Config{NetNS: b.ns.FD()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tables.Close() })
	b.k.NFT = tables
	who := map[string]iptables.Owner{Fairlead: iptables.Ours, KubeProxy: iptables.KubeProxys}
	b.k.Planes = Planes{
		OurTable: nftables.IsOurs,
		CountChains: func(ctx context.Context, k kernel.Kernel, owner string) (int, error) {
			return iptables.Leftovers(ctx, k, who[owner])
		},
		RemoveChains: func(ctx context.Context, k kernel.Kernel, owner string) error {
			return iptables.RemoveLeftovers(ctx, k, who[owner])
		},
	}
	for _, backend := range []kernel.Backend{kernel.NFT, kernel.Legacy} {
		programs, err := kernel.Installed(backend)
		if err != nil {
			t.Skipf("SKIPPED, not run: %v", err) // this backend is not installed; scripts/deps.sh installs both
		}
		c, err := kernel.Open(kernel.Config{Backend: backend, Programs: programs, LockFile: b.lock, Namespace: b.ns.FD()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		b.k.IPTables = append(b.k.IPTables, c)
	}
	return b
}

// sh runs a shell command in the namespace.
func (b *bed) sh(script string) string {
	b.t.Helper()
	var out []byte
	err := b.ns.Do(func() (err error) {
		cmd := exec.Command("sh", "-ec", script)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+b.lock)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// find returns what an owner has, in words.
func (b *bed) find(owner string) []string {
	b.t.Helper()
	var out []string
	for _, l := range b.list(owner) {
		out = append(out, l.String())
	}
	return out
}

func (b *bed) list(owner string) (out []Leftover) {
	b.t.Helper()
	err := b.ns.Do(func() (err error) { out, err = b.k.Find(b.t.Context(), owner); return err })
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bed) remove(owner string) {
	b.t.Helper()
	for _, l := range b.list(owner) {
		if err := b.ns.Do(func() error { return l.Remove(b.t.Context()) }); err != nil {
			b.t.Error(err)
		}
	}
}

const listAll = "nft list ruleset; for b in legacy nft; do for p in iptables ip6tables; do $p-$b-save 2>/dev/null | grep -E '^(-A|:KUBE)' || true; done; done; ip -o link; ipset list -n"

// theirs is what a kube-proxy of iptables mode leaves in a backend, in short.
const theirs = `for p in iptables-BACKEND ip6tables-BACKEND; do $p-restore --noflush <<'END'
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-SERVICES -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SEP-AAAAAAAAAAAAAAAA -j KUBE-MARK-MASQ
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-FIREWALL - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A INPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -j DROP
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
END
done
`

// TestFindAndRemoveKubeProxys: everything of each of its modes goes, and the listing
// is as it was before it came.
func TestFindAndRemoveKubeProxys(t *testing.T) {
	for name, c := range map[string]struct {
		make string
		want []string
	}{
		"nothing": {"true", nil},
		"nftables": {"nft add table ip kube-proxy; nft add chain ip kube-proxy services; nft add table ip6 kube-proxy",
			[]string{"kube-proxy's table ip kube-proxy in nftables", "kube-proxy's table ip6 kube-proxy in nftables"}},
		"iptables-nft":    {strings.ReplaceAll(theirs, "BACKEND", "nft"), []string{"kube-proxy's 16 chains in iptables-nft"}},
		"iptables-legacy": {strings.ReplaceAll(theirs, "BACKEND", "legacy"), []string{"kube-proxy's 16 chains in iptables-legacy"}},
		"ipvs": {"ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.10/32 dev kube-ipvs0; ipset create KUBE-CLUSTER-IP hash:ip,port; " +
			"ipset create KUBE-6-LOOP-BACK hash:ip,port,ip family inet6; ipset create KUBE-MINE hash:ip; ipset destroy KUBE-MINE; " +
			"iptables-nft -t nat -N KUBE-LOAD-BALANCER; iptables-nft -t nat -A KUBE-LOAD-BALANCER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN",
			[]string{"kube-proxy's 1 chain in iptables-nft", "kube-proxy's device kube-ipvs0 in ipvs", "kube-proxy's 2 ipsets and the virtual servers of its NodePorts in ipvs"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.sh("iptables-legacy -t nat -S >/dev/null; ip6tables-legacy -t nat -S >/dev/null; iptables-legacy -t mangle -S >/dev/null; ip6tables-legacy -t mangle -S > /dev/null; iptables-legacy -S >/dev/null; ip6tables-legacy -S >/dev/null")
			before := b.sh(listAll)
			b.sh(c.make)
			if got := b.find(KubeProxy); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if got := b.find(Fairlead); len(got) > 0 {
				t.Errorf("taken for ours: %q", got)
			}
			b.remove(KubeProxy)
			b.remove(KubeProxy)
			if after := b.sh(listAll); after != before {
				t.Errorf("left is\n%s\nwhere was\n%s", after, before)
			}
		})
	}
}

// TestOthersRulesStay: tables that others use, their chains, kubelet's chains, sets of
// another name; a chain that somebody leads to is only emptied.
func TestOthersRulesStay(t *testing.T) {
	b := newBed(t)
	b.sh(`iptables-nft -t nat -N CNI-HOSTPORT; iptables-nft -t nat -A PREROUTING -m comment --comment "kubernetes look-alike" -j CNI-HOSTPORT
		iptables-nft -P FORWARD DROP; iptables-nft -t mangle -N KUBE-KUBELET-CANARY; iptables-nft -t mangle -N KUBE-IPTABLES-HINT
		ip6tables-nft -t nat -S >/dev/null; ipset create KUBE-MINE hash:ip; nft add table inet mine; nft add table ip mine`)
	before := b.sh("iptables-nft-save | grep -v '^#'; nft list table inet mine; ipset list -n")
	b.sh(strings.ReplaceAll(theirs, "BACKEND", "nft"))
	b.sh("iptables-nft -t nat -A CNI-HOSTPORT -j KUBE-MARK-MASQ")
	b.remove(KubeProxy)
	after := b.sh("iptables-nft-save; nft list table inet mine; ipset list -n")
	for _, want := range []string{"-A PREROUTING -m comment --comment \"kubernetes look-alike\" -j CNI-HOSTPORT", ":FORWARD DROP", ":KUBE-KUBELET-CANARY",
		":KUBE-FIREWALL", "-A INPUT -j KUBE-FIREWALL", "-A CNI-HOSTPORT -j KUBE-MARK-MASQ", "table inet mine", "KUBE-MINE"} {
		if !strings.Contains(after, want) {
			t.Errorf("gone: %s\nleft is\n%s\nbefore was\n%s", want, after, before)
		}
	}
	for _, gone := range []string{"KUBE-SVC", "KUBE-SEP", "KUBE-SERVICES", "KUBE-FORWARD", "-A KUBE-MARK-MASQ"} {
		if strings.Contains(after, gone) {
			t.Errorf("left: %s", gone)
		}
	}
}

func verified(context.Context, bool) error { return nil }

// buffer is a log that may be read meanwhile.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestRunWaitsForOurRules: nothing goes before they are in; what comes back is told
// and not fought; with Leave nothing goes at all.
func TestRunWaitsForOurRules(t *testing.T) {
	b := newBed(t)
	const kubeProxys = "nft add table ip kube-proxy"
	b.sh(kubeProxys)
	var log buffer
	inKernel, asked, same := make(chan struct{}), make(chan bool, 1), make(chan struct{})
	verify := func(_ context.Context, toRemove bool) error {
		asked <- toRemove
		<-same
		return nil
	}
	run := func(leave bool) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		p := Params{Kernels: b.k, Own: NFTables, Leave: leave, InKernel: inKernel, Verify: verify, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Looks: []time.Duration{10 * time.Millisecond}}
		go func() { done <- b.ns.Do(func() error { return Run(ctx, p) }) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	has := func() bool { return strings.Contains(b.sh("nft list tables"), "kube-proxy") }
	stop := run(true)
	b.says(&log, "keeping them because of --no-takeover")
	stop()
	stop = run(false)
	b.says(&log, "removing them when the agent's rules are in the kernel")
	if !has() {
		t.Error("removed before our rules were in")
	}
	close(inKernel)
	if toRemove := <-asked; !toRemove || !has() {
		t.Errorf("removed before our rules were compared with the kernel; something to remove: %t", toRemove)
	}
	close(same)
	b.says(&log, "removed rules that another proxy left")
	if has() {
		t.Error("not removed")
	}
	b.sh(kubeProxys) // a stale dump that is restored goes (k3s#7261)
	b.says(&log, "rules of kube-proxy came back; removing them once more")
	b.eventually("what came back goes once", func() bool { return !has() })
	if strings.Contains(log.String(), "another proxy runs") {
		t.Error("a dump that was restored once is taken for a proxy that runs")
	}
	b.sh(kubeProxys)
	b.says(&log, "another proxy runs in this network namespace: the rules that were removed came back")
	if !has() {
		t.Error("removed a second time: that would never end")
	}
	stop()
}

// TestPolicyOfATableStays: a table that holds nothing but an administrator's policy DROP is not one that iptables left empty.
func TestPolicyOfATableStays(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -P FORWARD DROP; iptables-nft -t nat -N KUBE-SERVICES")
	b.remove(KubeProxy)
	if left := b.sh("nft list ruleset"); strings.Contains(left, "table ip nat") || !strings.Contains(left, "policy drop") {
		t.Errorf("left: %s", left)
	}
}

// TestEmptyTableOfAnAdministratorStays: only tables that held chains of the owner and then hold nothing but built-in chains of iptables go.
func TestEmptyTableOfAnAdministratorStays(t *testing.T) {
	b := newBed(t)
	b.sh(`nft 'table ip filter { chain INPUT { type filter hook input priority filter; policy accept; }; }; table ip6 mangle { }'
		nft 'table ip nat { chain pre { type nat hook prerouting priority dstnat; policy accept; }; }'; iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t mangle -N KUBE-PROXY-CANARY`)
	b.remove(KubeProxy)
	left := b.sh("nft list ruleset")
	for _, want := range []string{"table ip filter", "chain INPUT", "table ip6 mangle", "table ip nat", "chain pre"} {
		if !strings.Contains(left, want) {
			t.Errorf("gone: %s\n%s", want, left)
		}
	}
	if strings.Contains(left, "KUBE-") || strings.Contains(left, "table ip mangle") {
		t.Errorf("left:\n%s", left)
	}
}

// TestLiveKubeProxyKeepsItsRules: an agent that starts or restarts while a kube-proxy runs leaves its rules until it has stopped.
func TestLiveKubeProxyKeepsItsRules(t *testing.T) {
	b := newBed(t)
	b.sh("nft add table ip kube-proxy; iptables-legacy -t nat -N KUBE-SERVICES")
	var log buffer
	var live atomic.Bool
	live.Store(true)
	asked := make(chan struct{}, 1000)
	inKernel := make(chan struct{})
	close(inKernel)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := Params{Kernels: b.k, Own: NFTables, InKernel: inKernel, Verify: verified, Log: slog.New(slog.NewTextHandler(&log, nil)), Looks: []time.Duration{10 * time.Millisecond},
		Live: func(context.Context) string {
			select {
			case asked <- struct{}{}:
			default:
			}
			if live.Load() {
				return "process 7"
			}
			return ""
		}}
	go func() { done <- b.ns.Do(func() error { return Run(ctx, p) }) }()
	b.says(&log, "kube-proxy runs in this network namespace: its rules stay until it has stopped")
	for range 3 {
		<-asked
	}
	has := func() bool {
		return strings.Contains(b.sh("nft list tables"), "kube-proxy") || strings.Contains(b.sh("iptables-legacy-save"), "KUBE-SERVICES")
	}
	if !has() || strings.Contains(log.String(), "removed rules") {
		t.Errorf("the rules of a kube-proxy that runs are removed:\n%s", log.String())
	}
	live.Store(false)
	b.eventually("the rules of a kube-proxy that has stopped go", func() bool { return !has() })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "kube-proxy runs in this network namespace"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// TestOwnPlaceIsNotTold: while the engine writes its first chains, a part of them looks
// like kube-proxy's.
func TestOwnPlaceIsNotTold(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -t nat -N KUBE-SERVICES; nft add table ip kube-proxy")
	var log buffer
	inKernel := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := Params{Kernels: b.k, Own: IPTablesNFT, InKernel: inKernel, Verify: verified, Log: slog.New(slog.NewTextHandler(&log, nil)), Looks: []time.Duration{time.Hour}}
	go func() { done <- b.ns.Do(func() error { return Run(ctx, p) }) }()
	b.says(&log, "table ip kube-proxy")
	close(inKernel)
	b.says(&log, "removed rules that another proxy left")
	b.eventually("what is left of kube-proxy goes", func() bool { return !strings.Contains(b.sh("iptables-nft-save"), "KUBE-SERVICES") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, "found rules that another proxy left; removing them when the agent's rules are in the kernel\" what=\"kube-proxy's 1 chain") {
		t.Errorf("told before our own rules were in:\n%s", text)
	}
}

func (b *bed) says(log *buffer, text string) {
	b.t.Helper()
	b.eventually("the log says "+text, func() bool { return strings.Contains(log.String(), text) })
}

func (b *bed) eventually(what string, f func() bool) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) { // bounded poll
		if time.Now().After(end) {
			b.t.Fatalf("%s: not within a minute", what)
		}
	}
}
