package takeover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

var errMemory = errors.New("out of memory")

// attempt returns what an owner has in words, and the error of the search.
func (b *bed) attempt(owner string) (names []string, list []Leftover, err error) {
	err = b.ns.Do(func() (err error) { list, err = b.k.Find(b.t.Context(), owner); return err })
	for _, l := range list {
		names = append(names, l.String())
	}
	return names, list, err
}

// removeOne removes the leftover that has this name.
func (b *bed) removeOne(owner, name string) error {
	b.t.Helper()
	_, list, _ := b.attempt(owner)
	for _, l := range list {
		if l.String() == name {
			return b.ns.Do(func() error { return l.Remove(b.t.Context()) })
		}
	}
	b.t.Fatalf("not found: %s", name)
	return nil
}

// everywhere leaves rules of both owners in every place, two in each, among tables of other programs.
const everywhere = `
nft 'table arp nat { }; table ip other { chain nat { type nat hook prerouting priority 0; }; }; table inet nat { }
	table ip fairlead { chain pre { type nat hook prerouting priority 0; tcp dport 1 accept; }; }; table ip kube-proxy { chain pre { type nat hook prerouting priority 0; tcp dport 1 accept; }; }
	table ip6 fairlead { }; table ip6 kube-proxy { }; table ip servers { }; table ip zz { }'
for b in nft legacy; do
	ip6tables-$b -t nat -N KUBE-SERVICES
	for table in nat filter mangle; do iptables-$b -t $table -N OWN-$table; ip6tables-$b -t $table -N KUBE-$table; done
done
ip link add kube-ipvs0 type bridge; ipset create KUBE-CLUSTER-IP hash:ip,port; ipset create KUBE-LOOP-BACK hash:ip,port,ip; ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535`

// planesOf are Planes of tests: the chains that start with OWN- or KUBE- are an owner's.
func planesOf(b *bed) Planes {
	scripts := map[string]string{Fairlead: "OWN-", KubeProxy: "KUBE-"}
	programs := func(k kernel.Kernel, script string) string {
		return b.sh("for p in iptables ip6tables; do for t in nat filter mangle; do " + strings.ReplaceAll(script, "PROG", "$p-"+string(k.Backend())) + "; done; done")
	}
	return Planes{
		OurTable:   func(t *nft.Table) bool { return t.Ref.Name == "fairlead" },
		OurServers: func(t *nft.Table) bool { return t.Ref.Name == "servers" },
		CountChains: func(_ context.Context, k kernel.Kernel, owner string) (int, error) {
			return strings.Count(programs(k, "PROG -t $t -S"), "-N "+scripts[owner]), nil
		},
		RemoveChains: func(_ context.Context, k kernel.Kernel, owner string) error {
			programs(k, "for c in $(PROG -t $t -S | sed -n 's/^-N \\("+scripts[owner]+".*\\)/\\1/p'); do PROG -t $t -X $c; done")
			return nil
		},
	}
}

// called records the calls of functions by name.
type called []string

func (c *called) fn(name string, err error) func(context.Context) error {
	return func(context.Context) error { *c = append(*c, name); return err }
}

func (c *called) count(name string) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { *c = append(*c, name); return 0, nil }
}

// TestFindInEveryPlace: each owner's leftovers are found in every place, whatever else is there, and are removed by themselves.
func TestFindInEveryPlace(t *testing.T) {
	b := newBed(t)
	b.sh(everywhere)
	var calls called
	b.k.Planes = planesOf(b)
	b.k.Planes.RemoveServers, b.k.Planes.RemoveDevice, b.k.Planes.RemoveNodePorts = calls.fn("servers", nil), calls.fn("device", nil), calls.fn("ports", nil)
	b.k.Planes.RetireServers, b.k.Planes.RetireNodePorts, b.k.Planes.RemoveCounters = calls.count("retire servers"), calls.count("retire ports"), calls.fn("counters", nil)
	tables := func(owner string) []string {
		return []string{owner + "'s table ip " + owner + " in nftables", owner + "'s table ip6 " + owner + " in nftables"}
	}
	sets := "kube-proxy's 3 ipsets and the virtual servers of its NodePorts in ipvs"
	for owner, want := range map[string][]string{
		Fairlead:  append(tables(Fairlead), "fairlead's 3 chains in iptables-nft", "fairlead's 3 chains in iptables-legacy", "fairlead's virtual servers in ipvs"),
		KubeProxy: append(tables(KubeProxy), "kube-proxy's 4 chains in iptables-nft", "kube-proxy's 4 chains in iptables-legacy", sets),
	} {
		got, list, err := b.attempt(owner)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("of %s: error %v, -want +got:\n%s", owner, err, d)
		}
		for _, l := range list {
			if l.retire != nil {
				_, _ = l.retire(t.Context())
			}
			if err := b.ns.Do(func() error { return l.Remove(t.Context()) }); err != nil {
				t.Error(err)
			}
		}
	}
	slices.Sort(calls)
	if want := (called{"counters", "counters", "counters", "counters", "ports", "retire ports", "retire servers", "servers"}); !slices.Equal(calls, want) {
		t.Errorf("called %v, want %v", calls, want)
	}
	b.sh("nft delete table ip servers")
	got, _, err := b.attempt(KubeProxy)
	if d := cmp.Diff([]string{"kube-proxy's device kube-ipvs0 in ipvs"}, got); d != "" || err != nil {
		t.Errorf("without the agent's table: error %v, -want +got:\n%s", err, d)
	}
	calls = nil
	if err := b.removeOne(KubeProxy, got[0]); err != nil || !slices.Equal(calls, called{"device"}) {
		t.Errorf("removal of the device: %v, called %v", err, calls)
	}
	if left, want := b.sh("nft list tables; ipset list -n; iptables-legacy-save | grep : | grep -e OWN -e KUBE || true"), "table arp nat\ntable ip other\ntable inet nat\ntable ip zz\n"; left != want {
		t.Errorf("left:\n%s", left)
	}
}

// TestFailureCostsItsPlaceOnly: what cannot be read or removed in one place is an error, and hides nothing in another one.
func TestFailureCostsItsPlaceOnly(t *testing.T) {
	b := newBed(t)
	b.sh(everywhere)
	b.sh("nft delete table ip servers")
	b.k.Planes = planesOf(b)
	healthy := b.k
	tables, legacy := []string{"kube-proxy's table ip kube-proxy in nftables", "kube-proxy's table ip6 kube-proxy in nftables"}, "kube-proxy's 4 chains in iptables-legacy"
	ipvs := []string{"kube-proxy's device kube-ipvs0 in ipvs", "kube-proxy's 3 ipsets and the virtual servers of its NodePorts in ipvs"}
	counts := func(backend kernel.Backend) {
		count := healthy.Planes.CountChains
		b.k.Planes.CountChains = func(ctx context.Context, k kernel.Kernel, owner string) (int, error) {
			if k.Backend() == backend {
				return 0, errMemory
			}
			return count(ctx, k, owner)
		}
	}
	unreadable := func() { b.k.NFT = &nft.Faulty{Kernel: b.k.NFT, OnRead: func(string) error { return errMemory }} }
	noPrograms := func() { b.k.IPTables = b.k.IPTables[1:] }
	stuck, calls := "kube-proxy's chains in iptables-nft", 0
	for name, c := range map[string]struct {
		harm   func()
		want   []string
		failed bool
	}{
		"nothing":            {func() {}, slices.Concat(tables, []string{"kube-proxy's 4 chains in iptables-nft", legacy}, ipvs), false},
		"nftables":           {unreadable, []string{legacy}, true},
		"no nf_tables":       {func() { b.k.NFT = nil }, append([]string{legacy}, ipvs...), false},
		"chains of nft":      {func() { counts(kernel.NFT) }, slices.Concat(tables, []string{legacy}, ipvs), true},
		"chains of legacy":   {func() { counts(kernel.Legacy) }, slices.Concat(tables, []string{"kube-proxy's 4 chains in iptables-nft"}, ipvs), true},
		"no programs of nft": {noPrograms, slices.Concat(tables, []string{stuck, legacy}, ipvs), false},
		"no programs":        {func() { b.k.IPTables = nil }, slices.Concat(tables, []string{stuck}, ipvs), false},
	} {
		b.k = healthy
		c.harm()
		got, list, err := b.attempt(KubeProxy)
		if d := cmp.Diff(c.want, got); d != "" || (err != nil) != c.failed || c.failed && !errors.Is(err, errMemory) {
			t.Errorf("%s: error %v, -want +got:\n%s", name, err, d)
		}
		for _, l := range list {
			if l.Stuck == "" {
				continue
			}
			if err := l.Remove(t.Context()); err == nil || err.Error() != "remove "+l.String()+": "+l.Stuck {
				t.Errorf("%s: removal of what cannot be removed: %v", name, err)
			}
		}
	}
	for n := range 3 { // tables, chains and servers each list the tables
		b.k, calls = healthy, n
		b.k.NFT = &nft.Faulty{Kernel: healthy.NFT, OnRead: func(method string) error {
			if method != "Tables" {
				return nil
			}
			if calls--; calls == -1 {
				return errMemory
			}
			return nil
		}}
		if got, _, err := b.attempt(KubeProxy); !errors.Is(err, errMemory) || !slices.Contains(got, legacy) {
			t.Errorf("list %d of the tables fails: %v, found %v", n+1, err, got)
		}
	}
	b.k = healthy
	noPrograms()
	if got, _, _ := b.attempt(Fairlead); slices.Contains(got, "fairlead's chains in iptables-nft") {
		t.Errorf("chains of the other owner are taken for the agent's: %v", got)
	}
	b.sh("nft add table ip servers")
	if got, _, _ := b.attempt(Fairlead); slices.Contains(got, "fairlead's virtual servers in ipvs") {
		t.Errorf("virtual servers that cannot be removed without IPVS are found: %v", got)
	}
	b.sh("ip6tables-nft -t nat -X KUBE-SERVICES")
	if got, _, _ := b.attempt(KubeProxy); slices.Contains(got, stuck) {
		t.Errorf("chains without kube-proxy's first one are taken for its: %v", got)
	}
}

// TestFailedRemovals: a removal that fails in part returns an error, and removes the rest where the rest does not depend on it.
func TestFailedRemovals(t *testing.T) {
	b := newBed(t)
	b.sh(everywhere)
	b.sh("nft delete table ip servers; iptables-legacy -A INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT")
	b.k.Planes = planesOf(b)
	healthy := b.k
	sets, chains, table := "kube-proxy's 3 ipsets and the virtual servers of its NodePorts in ipvs", "kube-proxy's 4 chains in iptables-nft", "kube-proxy's table ip kube-proxy in nftables"
	fails := func(method string) {
		b.k.NFT = &nft.Faulty{Kernel: healthy.NFT, OnRead: func(m string) error {
			if m == method {
				return errMemory
			}
			return nil
		}}
	}
	broken := map[string]func(){
		"node ports": func() { b.k.Planes.RemoveNodePorts = func(context.Context) error { return errMemory } },
		"chains": func() {
			b.k.Planes.RemoveChains = func(context.Context, kernel.Kernel, string) error { return errMemory }
		},
		"hooks": func() { fails("Chains") },
		"commit": func() {
			b.k.NFT = &nft.Faulty{Kernel: healthy.NFT, OnCommit: func(*nft.Batch) nft.Fault { return nft.Fault{Err: errMemory} }}
		},
		"counters": func() { b.k.Planes.RemoveCounters = func(context.Context) error { return errMemory } },
	}
	for _, c := range []struct{ fault, name, stays string }{
		{"node ports", sets, "KUBE-LOOP-BACK"}, {"chains", chains, "KUBE-filter"}, {"hooks", chains, "KUBE-filter"}, {"hooks", table, "table ip kube-proxy"},
		{"commit", table, "table ip kube-proxy"}, {"counters", chains, "table ip other"},
	} {
		b.k = healthy
		broken[c.fault]()
		err := b.removeOne(KubeProxy, c.name)
		if !errors.Is(err, errMemory) || !strings.HasPrefix(err.Error(), "remove "+c.name+": ") {
			t.Errorf("%s: %v", c.fault, err)
		}
		if left := b.sh("nft list ruleset; ipset list -n"); !strings.Contains(left, c.stays) {
			t.Errorf("%s: gone: %s\n%s", c.fault, c.stays, left)
		}
	}
	b.k = healthy
	if err := b.removeOne(KubeProxy, sets); err == nil || b.sh("ipset list -n") != "KUBE-CLUSTER-IP\n" {
		t.Errorf("a set in use: %v, left %s", err, b.sh("ipset list -n"))
	}
	if err := b.removeOne(KubeProxy, "kube-proxy's device kube-ipvs0 in ipvs"); err != nil || strings.Contains(b.sh("ip -o link"), "kube-ipvs0") {
		t.Errorf("a device without IPVS: %v", err)
	}
}

// TestTablesWithoutRulesOnlyAreDropped: of the tables that held chains those go which hold nothing but built-in chains without a rule, and any failure
// of a read is returned.
func TestTablesWithoutRulesOnlyAreDropped(t *testing.T) {
	base := "chain INPUT { type filter hook input priority 0; policy accept; }; chain KUBE-A { }; "
	script := map[string]string{
		"ip nat":     base,
		"ip filter":  "chain INPUT { type filter hook input priority 0; policy accept; }; chain FORWARD { type filter hook forward priority 0; policy drop; }; chain KUBE-A { }; ",
		"ip mangle":  base + "set administrators { type ipv4_addr; }; ",
		"ip6 nat":    "chain OUTPUT { type filter hook output priority 0; policy accept; }; chain POSTROUTING { type filter hook postrouting priority 0; policy accept; }; chain KUBE-A { }; ",
		"ip6 filter": "chain INPUT { type filter hook input priority 0; policy accept; tcp dport 1 accept; }; chain KUBE-A { }; ",
		"ip6 mangle": "chain INPUT { type filter hook output priority 0; policy accept; }; chain KUBE-A { }; ",
		"inet nat":   base, "ip raw": base, "ip6 raw": "chain INPUT { type filter hook input priority 0; policy accept; }; ",
	}
	b := newBed(t)
	for _, table := range slices.Sorted(maps.Keys(script)) {
		b.sh("nft 'table " + table + " { " + script[table] + "}'")
	}
	ctx := t.Context()
	held, err := b.k.holdChains(ctx, kernel.NFT)
	var names []string
	for _, ref := range held {
		names = append(names, ref.String())
	}
	slices.Sort(names)
	if want := []string{"ip filter", "ip mangle", "ip nat", "ip6 filter", "ip6 mangle", "ip6 nat"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("tables that hold chains: %v, %v", names, err)
	}
	if held, err := b.k.holdChains(ctx, kernel.Legacy); err != nil || len(held) > 0 {
		t.Errorf("of legacy: %v, %v", held, err)
	}
	b.sh("for f in ip ip6; do for t in nat filter mangle; do nft delete chain $f $t KUBE-A; done; done")
	healthy := b.k
	for method, calls := range map[string]int{"Generation": 0, "Tables": 0, "Chains": 3, "Sets": 0} {
		b.k.NFT = &nft.Faulty{Kernel: healthy.NFT, OnRead: func(m string) error {
			if m != method {
				return nil
			}
			if calls--; calls < 0 {
				return errMemory
			}
			return nil
		}}
		if err := b.k.dropEmpty(ctx, held); !errors.Is(err, errMemory) || strings.Count(b.sh("nft list tables"), "table") != 9 {
			t.Errorf("if %s fails: %v, left\n%s", method, err, b.sh("nft list tables"))
		}
		if method == "Tables" || method == "Chains" {
			calls = 0
			if list, err := b.k.holdChains(ctx, kernel.NFT); !errors.Is(err, errMemory) || len(list) > 0 {
				t.Errorf("if %s fails: tables that hold chains: %v, %v", method, list, err)
			}
		}
	}
	tries := 0
	b.k.NFT = &nft.Faulty{Kernel: healthy.NFT, OnCommit: func(*nft.Batch) nft.Fault { tries++; return nft.Fault{Err: nft.ErrGeneration} }}
	if err := b.k.dropEmpty(ctx, held); err != nil || tries < 2 || tries > 100 {
		t.Errorf("another program writes all the time: %v after %d tries", err, tries)
	}
	b.k = healthy
	if err := b.k.dropEmpty(ctx, held[:0]); err != nil || strings.Count(b.sh("nft list tables"), "table") != 9 {
		t.Errorf("without a table that held chains: %v", err)
	}
	for range 2 { // the second time nothing is left to drop
		if err := b.k.dropEmpty(ctx, held); err != nil {
			t.Error(err)
		}
	}
	left := strings.Split(strings.TrimSpace(b.sh("nft list tables | sort")), "\n")
	want := []string{"table inet nat", "table ip filter", "table ip mangle", "table ip raw", "table ip6 filter", "table ip6 mangle", "table ip6 raw"}
	if d := cmp.Diff(want, left); d != "" {
		t.Errorf("left: -want +got:\n%s", d)
	}
}
