package dns

import (
	"context"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	downAfter  = 2 // failures in a row
	deadAfter  = 5 // probes in a row that had no answer
	probeEvery = time.Second
	loopDomain = ".fairlead-probe.invalid." // RFC 6761: never to be found
)

// upstream is a server that other names are asked at.
type upstream struct {
	addr       netip.AddrPort
	mu         sync.Mutex
	fails      int       // in a row
	unheard    int       // probes in a row that had no answer
	loops      bool      // a probe of this server came back through it
	silences   int       // queries in a row that it answered without an OPT record and not with one
	plainUntil time.Time // it is asked without EDNS
}

func (f *forwarder) upstreams() []*upstream { return *f.servers.Load() }

// setServers replaces the servers; the state of those that stay is kept.
func (f *forwarder) setServers(addrs []netip.AddrPort) {
	var old, list []*upstream
	if p := f.servers.Load(); p != nil {
		old = *p
	}
	for _, a := range addrs {
		if i := slices.IndexFunc(old, func(u *upstream) bool { return u.addr == a }); i >= 0 {
			list = append(list, old[i])
		} else {
			list = append(list, &upstream{addr: a})
		}
	}
	f.servers.Store(&list)
}

func (f *forwarder) has(list []netip.AddrPort) bool {
	return slices.EqualFunc(f.upstreams(), list, func(u *upstream, a netip.AddrPort) bool { return u.addr == a })
}

// order lists the servers: healthy before others, at random among equals.
func (f *forwarder) order() []*upstream {
	all := f.upstreams()
	list := make([]*upstream, 0, len(all))
	var rest []*upstream
	for _, i := range mathrand.Perm(len(all)) {
		if u := all[i]; u.healthy() {
			list = append(list, u)
		} else {
			rest = append(rest, u)
		}
	}
	return append(list, rest...)
}

// dead reports whether no server has answered the last deadAfter probes. Clients' own
// questions do not count: any client can ask for a name that no server answers.
func (f *forwarder) dead() bool {
	return !slices.ContainsFunc(f.upstreams(), func(u *upstream) bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.unheard < deadAfter && !u.loops
	})
}

func (u *upstream) result(ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ok {
		u.fails = 0
	} else {
		u.fails++
	}
}

func (u *upstream) healthy() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fails < downAfter && !u.loops
}

// watch probes the servers that failed, and every server once at the start to detect
// whether it forwards this server's questions back to this server.
func (f *forwarder) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	probed := map[*upstream]struct{}{}
	for {
		f.probeAll(ctx, probed)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// probeAll probes the servers that need it: new ones, and those that fail.
func (f *forwarder) probeAll(ctx context.Context, probed map[*upstream]struct{}) {
	var wg sync.WaitGroup
	list := f.upstreams()
	for i, u := range list {
		if _, before := probed[u]; !before || !u.healthy() {
			wg.Go(func() { f.probe(ctx, i, u) })
		}
	}
	wg.Wait()
	clear(probed)
	n := 0
	for _, u := range list {
		probed[u] = struct{}{}
		if u.healthy() {
			n++
		}
	}
	if f.healthy != nil {
		f.healthy.Set(float64(n))
	}
}

func (f *forwarder) probe(ctx context.Context, i int, u *upstream) {
	u.mu.Lock()
	u.loops = false // gotProbe sets it again if it is still true
	u.mu.Unlock()
	err := f.reach(ctx, u, f.token+"-"+strconv.Itoa(i)+loopDomain)
	if ctx.Err() != nil {
		return
	}
	u.result(err == nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.unheard++; err == nil {
		u.unheard = 0
	}
}

// reach asks a server for name, with EDNS as clients' queries are asked. One that fails is asked without EDNS at the same
// time, as it may be EDNS that it does not answer.
func (f *forwarder) reach(ctx context.Context, u *upstream, name string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeTXT)
	m.SetEdns0(maxUDPAnswer, false)
	if u.healthy() || u.plain(f.now()) {
		_, err := f.exchange(ctx, u, m, false)
		return err
	}
	var edns, bare error
	var wg sync.WaitGroup
	wg.Go(func() { _, edns = f.exchange(ctx, u, m, false) })
	wg.Go(func() { _, bare = ask(ctx, u.addr, withoutEDNS(m)) })
	wg.Wait()
	if edns != nil && bare == nil {
		u.silentToEDNS(f.now())
	}
	if bare == nil {
		return nil
	}
	return edns
}

// gotProbe recognises a probe of this server that comes back: the upstream it was sent to
// forwards to this server, so it must not be asked.
func (f *forwarder) gotProbe(name string) bool {
	label, ok := strings.CutSuffix(name, loopDomain)
	if !ok {
		return false
	}
	token, number, _ := strings.Cut(label, "-")
	i, err := strconv.Atoi(number)
	list := f.upstreams()
	if err != nil || token != f.token || i < 0 || i >= len(list) {
		return false
	}
	u := list[i]
	u.mu.Lock()
	u.loops = true
	u.mu.Unlock()
	return true
}
