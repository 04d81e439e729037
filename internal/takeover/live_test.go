package takeover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kernel "github.com/fairlead/fairlead/internal/kernel/iptables"
)

// begin runs Run with short pauses until the test ends, or end is called. looks counts the looks that have begun.
func (b *bed) begin(p *Params) (log *buffer, end func()) {
	b.t.Helper()
	log = new(buffer)
	in := make(chan struct{})
	close(in)
	p.Kernels, p.InKernel, p.Log, p.Looks = b.k, in, slog.New(slog.NewTextHandler(log, nil)), []time.Duration{10 * time.Millisecond}
	if p.Verify == nil {
		p.Verify = verified
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	params := *p
	go func() { done <- b.ns.Do(func() error { return Run(ctx, params) }) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(end)
	return log, end
}

// switchable is a kube-proxy that a test starts and stops.
type switchable struct {
	on    atomic.Bool
	asked atomic.Int64
}

func (s *switchable) live(context.Context) string {
	s.asked.Add(1)
	if s.on.Load() {
		return "process 7"
	}
	return ""
}

// looks waits until it was asked some more times.
func (b *bed) looks(s *switchable, n int64) {
	b.t.Helper()
	to := s.asked.Load() + n
	b.eventually("more looks", func() bool { return s.asked.Load() >= to })
}

// TestRetriesAskForKubeProxy: a removal that failed is not tried again while a kube-proxy runs, and is once it has stopped.
func TestRetriesAskForKubeProxy(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-legacy -t nat -N KUBE-SERVICES")
	var proxy switchable
	remove, busy := b.k.Planes.RemoveChains, atomic.Bool{}
	busy.Store(true)
	b.k.Planes.RemoveChains = func(ctx context.Context, k kernel.Kernel, owner string) error {
		if busy.Load() {
			return errors.New("another program holds the lock")
		}
		return remove(ctx, k, owner)
	}
	log, end := b.begin(&Params{Own: NFTables, Live: proxy.live})
	b.says(log, "cannot remove rules that another proxy left; trying again")
	proxy.on.Store(true)
	b.looks(&proxy, 2)
	busy.Store(false)
	b.looks(&proxy, 3)
	if left := b.sh("iptables-legacy-save"); !strings.Contains(left, "KUBE-SERVICES") {
		t.Errorf("the rules of a kube-proxy that runs are removed:\n%s", log.String())
	}
	proxy.on.Store(false)
	b.says(log, "removed rules that another proxy left")
	end()
	if text := log.String(); strings.Contains(text, "came back") {
		t.Errorf("rules that were never removed have come back:\n%s", text)
	}
}

// servers is a device with virtual servers of which a connection is open until closed is set.
type servers struct {
	retired atomic.Int64
	closed  atomic.Bool
}

func (s *servers) retire(context.Context) (int, error) {
	s.retired.Add(1)
	if s.closed.Load() {
		return 0, nil
	}
	return 1, nil
}

// TestDrainingAsksForKubeProxy: virtual servers get no new connections only while no kube-proxy runs. Each drains once, however often the rules of
// another place are removed meanwhile, and is removed when its own time is over.
func TestDrainingAsksForKubeProxy(t *testing.T) {
	b := newBed(t)
	b.sh("ip link add kube-ipvs0 type bridge; nft add table ip kube-proxy")
	var proxy switchable
	var ipvs servers
	b.k.Planes.RetireServers = ipvs.retire
	log, end := b.begin(&Params{Own: NFTables, Live: proxy.live, Drain: time.Hour})
	b.says(log, "no new connections")
	proxy.on.Store(true)
	b.looks(&proxy, 2)
	before := ipvs.retired.Load()
	b.looks(&proxy, 3)
	if now := ipvs.retired.Load(); now != before {
		t.Errorf("the virtual servers of a kube-proxy that runs were retired %d times", now-before)
	}
	b.sh("nft add table ip kube-proxy")
	proxy.on.Store(false)
	b.eventually("the table goes", func() bool { return !strings.Contains(b.sh("nft list tables"), "kube-proxy") })
	b.looks(&proxy, 1) // the look after the one in which it went
	from, looks := ipvs.retired.Load(), proxy.asked.Load()
	b.looks(&proxy, 5)
	if n, most := ipvs.retired.Load()-from, proxy.asked.Load()-looks+1; n > most {
		t.Errorf("retired %d times in %d looks", n, most)
	}
	ipvs.closed.Store(true)
	b.eventually("the device goes", func() bool { return !strings.Contains(b.sh("ip -o link"), "kube-ipvs0") })
	b.looks(&proxy, 2)
	end()
	if n := strings.Count(log.String(), `removed rules that another proxy left" what="kube-proxy's device`); n != 1 {
		t.Errorf("removed %d times:\n%s", n, log.String())
	}
}

// TestDrainEnds: rules that come back do not lengthen the time that connections through virtual servers have.
func TestDrainEnds(t *testing.T) {
	b := newBed(t)
	b.sh("ip link add kube-ipvs0 type bridge")
	var ipvs servers
	b.k.Planes.RetireServers = ipvs.retire
	p := Params{Kernels: b.k, Own: NFTables, Verify: verified, Log: slog.New(slog.DiscardHandler), Drain: 50 * time.Millisecond}
	r := runner{Params: p, removed: map[Place]int{}, warned: map[Place]bool{}}
	err := b.ns.Do(func() error {
		r.clear(t.Context())
		first := r.drainBy
		if len(first) != 1 {
			return fmt.Errorf("drains: %v", first)
		}
		r.clear(t.Context())
		for what, by := range r.drainBy {
			if !by.Equal(first[what]) {
				t.Errorf("%s drains until %s, then until %s", what, first[what], by)
			}
		}
		time.Sleep(time.Until(first["kube-proxy's device kube-ipvs0 in ipvs"]))
		r.clear(t.Context())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if left := b.sh("ip -o link"); strings.Contains(left, "kube-ipvs0") || r.pending() {
		t.Errorf("left: %s", left)
	}
}

// TestUnreadPlaceIsLoggedOnce: what cannot be searched is one line, although several searches fail on it.
func TestUnreadPlaceIsLoggedOnce(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -t nat -N KUBE-SERVICES; nft add table ip kube-proxy")
	b.k.Planes.CountChains = func(context.Context, kernel.Kernel, string) (int, error) {
		return 0, errors.New("program not installed")
	}
	log, end := b.begin(&Params{Own: NFTables})
	b.says(log, "removed rules that another proxy left")
	end()
	if n := strings.Count(log.String(), "cannot read the rules that other proxies left"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// TestOwnRulesAreVerifiedAgain: after a kube-proxy has stopped nothing is removed before the agent's rules were compared with the kernel, because
// kube-proxy may have written its own in their place last.
func TestOwnRulesAreVerifiedAgain(t *testing.T) {
	b := newBed(t)
	b.sh("iptables-nft -t nat -N KUBE-SERVICES")
	var proxy switchable
	proxy.on.Store(true)
	var verify atomic.Int64
	log, end := b.begin(&Params{Own: IPTablesNFT, Live: proxy.live, Verify: func(_ context.Context, toRemove bool) error {
		if toRemove {
			verify.Add(1)
		}
		return nil
	}})
	b.says(log, "kube-proxy runs in this network namespace")
	b.looks(&proxy, 3)
	if n := verify.Load(); n > 0 {
		t.Errorf("verified %d times for a removal, and kube-proxy runs", n)
	}
	proxy.on.Store(false)
	b.says(log, "removed rules that another proxy left")
	end()
	if verify.Load() != 1 {
		t.Errorf("verified %d times", verify.Load())
	}
}
