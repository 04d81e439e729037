package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// runner returns a Run that a test steps through, its log, and the last list of places that it reported.
func (b *bed) runner(p Params) (r *runner, log *buffer, reported *string) {
	log, reported = new(buffer), new(string)
	*reported = "none yet"
	p.Kernels, p.Log = b.k, slog.New(slog.NewTextHandler(log, nil))
	p.Report = func(places []Place) { *reported = fmt.Sprint(places) }
	if p.Verify == nil {
		p.Verify = verified
	}
	return &runner{Params: p, removed: map[Place]int{}, warned: map[Place]bool{}}, log, reported
}

// TestComingBack: rules that come back are removed once per place, and again after the place was clean for calm looks. Those that come back before
// are reported until they are gone.
func TestComingBack(t *testing.T) {
	r, log, reported := (&bed{t: t}).runner(Params{})
	r.left = map[Place]bool{IPVS: true}
	for _, step := range []struct {
		look     int
		now      []Place
		remove   bool
		warned   string // "": no report
		mentions int
	}{
		{0, nil, false, "", 0},
		{1, []Place{IPVS}, false, "", 0}, // it was never removed
		{2, []Place{NFTables, IPTablesNFT}, true, "", 2},
		{2 + calm, []Place{NFTables}, false, "[nftables]", 3},
		{3 + calm, []Place{NFTables, IPTablesNFT}, true, "", 4},
		{4 + calm, []Place{NFTables, IPTablesNFT}, false, "[iptables-nft nftables]", 5},
		{5 + calm, []Place{NFTables, IPTablesNFT}, false, "", 5},
		{6 + calm, []Place{IPTablesNFT}, false, "[iptables-nft]", 5},
		{7 + calm, []Place{IPTablesNFT, IPTablesLegacy}, true, "", 6},
		{8 + calm, nil, false, "[]", 6},
	} {
		*reported = ""
		now := map[Place]bool{}
		for _, place := range step.now {
			now[place] = true
		}
		if remove := r.cameBack(step.look, now); remove != step.remove || *reported != step.warned {
			t.Errorf("look %d: remove %t, reported %q, want %t, %q", step.look, remove, *reported, step.remove, step.warned)
		}
		if n := strings.Count(log.String(), "\n"); n != step.mentions {
			t.Errorf("look %d: %d lines:\n%s", step.look, n, log.String())
		}
	}
	r.Report = nil
	if r.cameBack(9+calm, map[Place]bool{IPTablesLegacy: true}) {
		t.Error("removed a second time")
	}
}

// TestKubeProxyComesAndGoes: its start and its stop are logged once each, and forget what was seen of rules that came back.
func TestKubeProxyComesAndGoes(t *testing.T) {
	b := newBed(t)
	b.sh("nft 'table ip kube-proxy { }; table ip6 kube-proxy { }; table ip fairlead { }; table ip6 fairlead { }'; iptables-nft -t nat -N KUBE-SERVICES")
	b.k.Planes.OurTable = func(t *nft.Table) bool { return t.Ref.Name == "fairlead" }
	live := ""
	r, log, reported := b.runner(Params{Own: IPTablesLegacy, Live: func(context.Context) string { return live }})
	r.removed[NFTables], r.warned[NFTables] = 1, true
	state := func() (out string) {
		_ = b.ns.Do(func() error {
			r.askLive(t.Context())
			out = fmt.Sprintf("%d lines, %d removed, %d warned, %s reported", strings.Count(log.String(), "\n"), len(r.removed), len(r.warned), *reported)
			for _, l := range r.removable(t.Context()) {
				out += ", " + l.Owner + " in " + string(l.Place)
			}
			return nil
		})
		return out
	}
	own := ", fairlead in nftables, fairlead in nftables"
	for _, step := range []struct{ live, want string }{
		{"", "0 lines, 1 removed, 1 warned, none yet reported" + own + ", kube-proxy in iptables-nft"},
		{"process 7", "1 lines, 0 removed, 0 warned, [] reported" + own},
		{"process 8", "1 lines, 0 removed, 0 warned, [] reported" + own},
		{"", "2 lines, 0 removed, 0 warned, [] reported" + own + ", kube-proxy in nftables, kube-proxy in nftables, kube-proxy in iptables-nft"},
		{"", "2 lines, 0 removed, 0 warned, [] reported" + own + ", kube-proxy in nftables, kube-proxy in nftables, kube-proxy in iptables-nft"},
	} {
		live = step.live
		if got := state(); got != step.want {
			t.Errorf("live %q: %s\nwant %s", step.live, got, step.want)
		}
	}
	r.Own = NFTables
	if got, want := state(), "2 lines, 0 removed, 0 warned, [] reported, kube-proxy in nftables, kube-proxy in nftables, kube-proxy in iptables-nft"; got != want {
		t.Errorf("with the agent in nftables: %s\nwant %s", got, want)
	}
}

// TestSearchErrors: an error is logged when it appears or changes, not while the context ends, and again after the search succeeded.
func TestSearchErrors(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -t nat -N KUBE-SERVICES; nft add table ip kube-proxy")
	var fails string
	b.k.Planes.CountChains = func(_ context.Context, _ kernel.Kernel, owner string) (int, error) {
		if fails == "" {
			return 0, nil
		}
		return 0, errors.New(fails + owner)
	}
	r, log, _ := b.runner(Params{Own: NFTables})
	for _, step := range []struct {
		fails string
		lines int
	}{{"", 0}, {"a", 1}, {"a", 1}, {"b", 2}, {"", 2}, {"b", 3}} {
		fails = step.fails
		_ = b.ns.Do(func() error {
			if n := len(r.found(t.Context())); n != 1 {
				t.Errorf("found %d", n)
			}
			return nil
		})
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("error %q: %d lines, want %d:\n%s", fails, n, step.lines, log.String())
		}
	}
	if text := log.String(); strings.Contains(text, "a"+KubeProxy) || !strings.Contains(text, "a"+Fairlead) {
		t.Errorf("not the first error:\n%s", text)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails = "c"
	_ = b.ns.Do(func() error { r.found(ended); return nil })
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("logged although the context has ended:\n%s", log.String())
	}
}

// TestClearing: a failure of one leftover costs that one, which is tried again; the agent's own rules are compared first, once for leftovers that drain.
func TestClearing(t *testing.T) {
	b := newBed(t)
	b.sh("nft 'table ip kube-proxy { chain a { }; }; table ip6 kube-proxy { }'; ip link add kube-ipvs0 type bridge; ipset create KUBE-CLUSTER-IP hash:ip,port; iptables-legacy -t nat -N KUBE-SERVICES; iptables-nft -t nat -N KUBE-SERVICES")
	var open, ports int
	var retireErr, removeErr, verifyErr error
	var verifies []bool
	b.k.Planes.RetireServers = func(context.Context) (int, error) { return open, retireErr }
	b.k.Planes.RetireNodePorts = func(context.Context) (int, error) { return ports, nil }
	remove := b.k.Planes.RemoveChains
	b.k.Planes.RemoveChains = func(ctx context.Context, k kernel.Kernel, owner string) error {
		if k.Backend() == kernel.Legacy && removeErr != nil {
			return removeErr
		}
		return remove(ctx, k, owner)
	}
	r, log, _ := b.runner(Params{Own: NFTables, Drain: time.Hour, Verify: func(_ context.Context, toRemove bool) error {
		verifies = append(verifies, toRemove)
		return verifyErr
	}})
	check := func(step string, pending bool, lines, drains, verified int, stay ...string) {
		t.Helper()
		before := strings.Count(log.String(), "\n")
		verifies = nil
		_ = b.ns.Do(func() error { r.clear(t.Context()); return nil })
		left := b.find(KubeProxy)
		if d := cmp.Diff(stay, left); d != "" {
			t.Errorf("%s: -want +got:\n%s", step, d)
		}
		if n := strings.Count(log.String(), "\n") - before; r.pending() != pending || n != lines || len(r.drainBy) != drains || len(verifies) != verified {
			t.Errorf("%s: pending %t, %d lines, %d drain, verified %v:\n%s", step, r.pending(), n, len(r.drainBy), verifies, log.String())
		}
	}
	table4, table6, chainsN, chainsL := "kube-proxy's table ip kube-proxy in nftables", "kube-proxy's table ip6 kube-proxy in nftables", "kube-proxy's 1 chain in iptables-nft", "kube-proxy's 1 chain in iptables-legacy"
	device, sets := "kube-proxy's device kube-ipvs0 in ipvs", "kube-proxy's 1 ipsets and the virtual servers of its NodePorts in ipvs"
	verifyErr = context.Canceled
	check("not compared", false, 0, 0, 1, table4, table6, chainsN, chainsL, device, sets)
	verifyErr, open, ports, removeErr = nil, 2, 1, errors.New("another program holds the lock")
	check("legacy is locked, connections are open", true, 6, 2, 1, chainsL, device, sets)
	check("the same again", true, 3, 2, 1, chainsL, device, sets)
	removeErr = nil
	check("unlocked", true, 3, 2, 1, device, sets)
	first := maps.Clone(r.drainBy)
	open, retireErr, ports = 0, errors.New("no IPVS"), 1
	check("nothing but what drains, unreadable", true, 2, 2, 0, device, sets)
	ports = 0
	check("no connections to NodePorts", true, 2, 1, 0, device)
	if !first[device].Equal(r.drainBy[device]) {
		t.Errorf("the time to drain has moved from %s to %s", first[device], r.drainBy[device])
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	lines := strings.Count(log.String(), "\n")
	_ = b.ns.Do(func() error { r.clear(ended); return nil })
	if !slices.Equal(b.find(KubeProxy), []string{device}) || strings.Count(log.String(), "\n") != lines {
		t.Errorf("removed or logged although the context has ended:\n%s", log.String())
	}
	ends, end := context.WithCancel(t.Context())
	b.k.Planes.RetireServers = func(context.Context) (int, error) { end(); return 0, nil }
	r.Kernels = b.k
	_ = b.ns.Do(func() error { r.clear(ends); return nil })
	if !slices.Equal(b.find(KubeProxy), []string{device}) || strings.Count(log.String(), "\n") != lines {
		t.Errorf("removed or logged although the context ended meanwhile:\n%s", log.String())
	}
	r.drainBy[device] = time.Now()
	check("drained for long enough", false, 1, 0, 0)
	check("nothing left", false, 0, 0, 0)
}

// TestStuckLeftovers: what cannot be removed here is logged, and not tried again by itself, but by what else fails in its place.
func TestStuckLeftovers(t *testing.T) {
	r, log, _ := (&bed{t: t}).runner(Params{})
	r.left = map[Place]bool{}
	stuck := Leftover{Owner: KubeProxy, Place: IPTablesNFT, What: "chains", Stuck: "no programs"}
	locked := Leftover{Owner: KubeProxy, Place: IPTablesNFT, What: "1 chain", remove: func(context.Context) error { return errMemory }}
	r.remove(t.Context(), &stuck)
	if again, left := r.left[IPTablesNFT]; again || !left || r.pending() || strings.Contains(log.String(), "again") {
		t.Errorf("stuck: left %t, tried again %t:\n%s", left, again, log.String())
	}
	r.remove(t.Context(), &locked)
	r.remove(t.Context(), &stuck)
	if !r.left[IPTablesNFT] || !r.pending() || strings.Count(log.String(), "\n") != 3 {
		t.Errorf("locked, then stuck: %v:\n%s", r.left, log.String())
	}
	r.left[NFTables] = false
	if !r.pending() {
		t.Error("one of two is not tried again")
	}
}

// stamped is x_tables with a stamp that a test sets.
type stamped struct {
	kernel.Kernel
	stamp kernel.Stamp
	err   error
}

func (s *stamped) Stamp(context.Context) (kernel.Stamp, error) { return s.stamp, s.err }

// TestLookingForReturns: each place but the agent's own is searched, and x_tables only after a change.
func TestLookingForReturns(t *testing.T) {
	b := newBed(t)
	legacy := &stamped{Kernel: b.k.IPTables[1], stamp: kernel.Stamp{Generation: 1}}
	b.k.IPTables[1] = legacy
	chains, counts := 0, 0
	var countErr error
	b.k.Planes.CountChains = func(_ context.Context, k kernel.Kernel, owner string) (int, error) {
		if k.Backend() != kernel.Legacy || owner != KubeProxy {
			t.Errorf("counts the chains of %s in %s", owner, k.Backend())
		}
		counts++
		return chains, countErr
	}
	again := returns{p: &Params{Kernels: b.k, Own: NFTables}}
	check := func(step string, counted int, want ...Place) {
		t.Helper()
		counts = 0
		var got []Place
		_ = b.ns.Do(func() error { got = slices.Sorted(maps.Keys(again.look(t.Context()))); return nil })
		if d := cmp.Diff(want, got); d != "" || counts != counted {
			t.Errorf("%s: counted %d times, want %d; -want +got:\n%s", step, counts, counted, d)
		}
	}
	chains = 1
	check("x_tables is not in use", 0)
	b.sh("iptables-legacy -t nat -S; nft add table ip6 kube-proxy; iptables-nft -t nat -N KUBE-SERVICES")
	check("everywhere", 1, IPTablesLegacy, IPTablesNFT, NFTables)
	check("still there", 1, IPTablesLegacy, IPTablesNFT, NFTables)
	again.p.Own = IPTablesNFT
	check("the agent in iptables-nft", 1, IPTablesLegacy, NFTables)
	again.p.Own = IPTablesLegacy
	check("the agent in iptables-legacy", 0, IPTablesNFT, NFTables)
	again.p.Own = NFTables
	legacy.err = errMemory
	check("no stamp", 0, IPTablesNFT, NFTables)
	legacy.err, countErr = nil, errMemory
	check("no count", 1, IPTablesNFT, NFTables)
	countErr, chains = nil, 0
	check("x_tables is clean", 1, IPTablesNFT, NFTables)
	check("x_tables has not changed", 0, IPTablesNFT, NFTables)
	legacy.stamp.Generation, chains = 2, 1
	check("x_tables has changed", 1, IPTablesLegacy, IPTablesNFT, NFTables)
	again.p.Kernels.IPTables = again.p.Kernels.IPTables[:1]
	b.sh("nft delete table ip6 kube-proxy; iptables-nft -t nat -X KUBE-SERVICES")
	check("no programs of legacy", 0)
	again.p.Kernels.NFT = nil
	check("no nf_tables", 0)
}

// TestKubeProxyStartsAsItsRulesAppear: rules that a look finds together with their running kube-proxy have not come back, and stay.
func TestKubeProxyStartsAsItsRulesAppear(t *testing.T) {
	b := newBed(t)
	var proxy switchable
	log, end := b.begin(&Params{Own: NFTables, Live: func(ctx context.Context) string {
		if proxy.asked.Load() == 3 { // a look that follows the start of Run
			b.sh("nft add table ip kube-proxy")
			proxy.on.Store(true)
		}
		return proxy.live(ctx)
	}})
	b.looks(&proxy, 6)
	end()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "kube-proxy runs in this network namespace") {
		t.Errorf("the log:\n%s", text)
	}
	if left := b.sh("nft list tables"); left != "table ip kube-proxy\n" {
		t.Errorf("left: %s", left)
	}
}

// TestFoundIsLogged: Run first logs every leftover, except those of a kube-proxy that runs and those in the place where the agent writes chains.
func TestFoundIsLogged(t *testing.T) {
	b := newBed(t)
	b.sh("nft 'table ip kube-proxy { }; table ip6 kube-proxy { }; table ip6 fairlead { }'; iptables-nft -t nat -N KUBE-SERVICES; iptables-legacy -t nat -N KUBE-SERVICES")
	b.k.Planes.OurTable = func(t *nft.Table) bool { return t.Ref.Name == "fairlead" }
	in := make(chan struct{})
	close(in)
	for _, c := range []struct {
		own   Place
		leave bool
		live  string
		want  []string
	}{
		{NFTables, false, "", []string{"table ip kube", "table ip6 kube", "iptables-nft", "iptables-legacy"}},
		{NFTables, true, "process 7", []string{"table ip kube", "table ip6 kube", "iptables-nft", "iptables-legacy"}}, // what runs is not asked
		{IPTablesNFT, false, "", []string{"table ip6 fair", "table ip kube", "table ip6 kube", "iptables-legacy"}},
		{IPTablesLegacy, true, "", []string{"table ip6 fair", "table ip kube", "table ip6 kube", "iptables-nft"}},
		{IPVS, false, "process 7", []string{"table ip6 fair"}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r, log, _ := b.runner(Params{Own: c.own, Leave: c.leave, InKernel: in, Live: func(context.Context) string { return c.live }, Verify: func(context.Context, bool) error {
			cancel() // all is logged before the first comparison
			return context.Canceled
		}})
		if err := b.ns.Do(func() error { return Run(ctx, r.Params) }); err != nil || (ctx.Err() == nil) != c.leave {
			t.Errorf("%+v: %v, verified although nothing is removed: %t", c, err, c.leave)
		}
		cancel()
		found := 0
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "found ") {
				continue
			}
			if found++; found > len(c.want) || !strings.Contains(line, c.want[found-1]) || strings.Contains(line, "no-takeover") != c.leave {
				t.Errorf("%+v: line %d: %s", c, found, line)
			}
		}
		if found != len(c.want) {
			t.Errorf("%+v: %d lines:\n%s", c, found, log.String())
		}
	}
}
