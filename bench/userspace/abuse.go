package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ports are the addresses of the Services' endpoints in the abuse, on one host: one that
// is not abused, and those that are, by a storm, by an endpoint that never answers and
// by clients that never read.
type ports struct{ well, stormed, silent, endless netip.AddrPort }

func parsePorts(text string) (pid int, p ports, err error) {
	f := strings.Split(text, ",")
	into := []*netip.AddrPort{&p.well, &p.stormed, &p.silent, &p.endless}
	if len(f) != 1+len(into) {
		return 0, p, fmt.Errorf("%q is not pid,well,stormed,silent,endless", text)
	}
	if pid, err = strconv.Atoi(f[0]); err != nil {
		return 0, p, err
	}
	for i, at := range into {
		if *at, err = netip.ParseAddrPort(f[i+1]); err != nil {
			return 0, p, err
		}
	}
	return pid, p, nil
}

// storming describes the storm on a Service: as many complete connections as possible,
// and SYNs from many addresses that are never completed, until both together are
// perSecond.
type storming struct {
	threads, nice int
	perSecond     float64 // 0: complete connections only
	from          netip.Prefix
	device        string // of the proxy's network namespace, where attempts arrive; "": they are not counted
}

// mishap is one kind of abuse of one Service; it continues until stop is closed.
type mishap struct {
	name string
	at   netip.AddrPort
	run  func(stop <-chan struct{}, attempts *tries) error
}

// tries are the connection attempts so far, and those of them that were complete
// connections.
type tries struct{ all, whole atomic.Int64 }

// seen is the result of one slice of one mishap.
type seen struct {
	through, direct []time.Duration
	failed          int
	attempts        float64 // per second, as the generators count them
	whole           float64 // complete ones of these
	arrived         float64 // SYNs per second at the proxy's interface
	cookies         float64 // per second
	memory          int     // MB, maximum
	files           int     // descriptors, maximum
}

func mishaps(p ports, s storming, holders int) []mishap {
	return []mishap{
		{"nothing", netip.AddrPort{}, func(stop <-chan struct{}, _ *tries) error { <-stop; return nil }},
		{"storm", p.stormed, func(stop <-chan struct{}, n *tries) error { return storm(p.stormed, s, stop, n) }},
		{"endpoint never answers", p.silent, func(stop <-chan struct{}, n *tries) error { hold(p.silent, holders, stop, n); return nil }},
		{"clients never read", p.endless, func(stop <-chan struct{}, n *tries) error { hold(p.endless, holders, stop, n); return nil }},
	}
}

// abuse runs one mishap after the other against the proxy, while clients send requests
// to a Service that is not abused. Each client alternates between the proxy and the
// endpoint itself, so that both are measured under the same load. It returns an error
// for each broken bound.
func abuse(all []mishap, w watched, most bounds, length time.Duration, rounds int) error {
	got := make([][]seen, len(all))
	for range rounds {
		for i := range all {
			s, err := suffer(&all[i], w, length)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			got[i] = append(got[i], s)
		}
	}
	fmt.Println("| | attempts/s | of them whole | SYNs arrived/s | cookies/s | p50 through ms | p99 through ms | p50 direct ms | p99 direct ms | p99 through/direct | failed | MB at most | descriptors at most |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	var broken []string
	for i := range all {
		sum := together(got[i])
		a, b := quantile(sum.through, 99), quantile(sum.direct, 99)
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %d | %d | %d |\n", all[i].name, sum.attempts, sum.whole, sum.arrived, sum.cookies,
			millis(quantile(sum.through, 50)), millis(a), millis(quantile(sum.direct, 50)), millis(b), float64(a)/float64(b), sum.failed, sum.memory, sum.files)
		broken = append(broken, most.broken(all[i].name, &sum, float64(a)/float64(b))...)
	}
	time.Sleep(time.Second) // ended connections are closed by then
	m, f := held(w.pid)
	fmt.Printf("\nA second after the last one: %d MB, %d descriptors.\n", m, f)
	for _, line := range broken {
		fmt.Println("FAIL:", line)
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d bounds are broken", len(broken))
	}
	return nil
}

func together(list []seen) (sum seen) {
	n := float64(len(list))
	for _, s := range list {
		sum.through, sum.direct = append(sum.through, s.through...), append(sum.direct, s.direct...)
		sum.failed += s.failed
		sum.attempts, sum.whole = sum.attempts+s.attempts/n, sum.whole+s.whole/n
		sum.arrived, sum.cookies = sum.arrived+s.arrived/n, sum.cookies+s.cookies/n
		sum.memory, sum.files = max(sum.memory, s.memory), max(sum.files, s.files)
	}
	return sum
}

func quantile(list []time.Duration, percent int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)*percent/100]
}

// watched is the proxy, and the ways to one endpoint.
type watched struct {
	pid             int
	device          string // see storming
	through, direct string
}

func suffer(m *mishap, w watched, length time.Duration) (out seen, err error) {
	var g *gauge
	if w.device != "" && m.at.IsValid() {
		if g, err = newGauge(w.pid, w.device, m.at.Port()); err != nil {
			return out, err
		}
		defer g.close()
	}
	stop := make(chan struct{})
	var attempts tries
	var doing sync.WaitGroup
	var failed error
	doing.Go(func() { failed = m.run(stop, &attempts) })
	time.Sleep(length / 4) // until the mishap has its full rate
	begin, all, whole, cookie := time.Now(), attempts.all.Load(), attempts.whole.Load(), cookies(w.pid)
	if g != nil {
		if _, err = g.since(); err != nil {
			return out, err
		}
	}
	demand(w, length, &out)
	seconds, arrived := time.Since(begin).Seconds(), 0
	if g != nil {
		arrived, err = g.since()
	}
	out.attempts, out.whole = float64(attempts.all.Load()-all)/seconds, float64(attempts.whole.Load()-whole)/seconds
	out.arrived, out.cookies = float64(arrived)/seconds, float64(cookies(w.pid)-cookie)/seconds
	close(stop)
	doing.Wait()
	return out, errors.Join(err, failed)
}

// demand runs some clients that send requests to a Service, and to the endpoint itself,
// and samples the proxy concurrently.
func demand(w watched, length time.Duration, out *seen) {
	var asking sync.WaitGroup
	begin := time.Now()
	var mu sync.Mutex
	for range 4 {
		asking.Go(func() {
			for time.Since(begin) < length {
				a, err := timed(w.through)
				b, direct := timed(w.direct)
				mu.Lock()
				if err != nil {
					out.failed++
				} else {
					out.through = append(out.through, a)
				}
				if direct == nil {
					out.direct = append(out.direct, b)
				}
				mu.Unlock()
				time.Sleep(2 * time.Millisecond) // a client with other work in between
			}
		})
	}
	for time.Since(begin) < length {
		mb, files := held(w.pid)
		out.memory, out.files = max(out.memory, mb), max(out.files, files)
		time.Sleep(100 * time.Millisecond)
	}
	asking.Wait()
}

func timed(to string) (time.Duration, error) {
	at := time.Now()
	err := visit(to)
	return time.Since(at), err
}

// held returns the resident memory in MB and the number of descriptors of a process.
func held(pid int) (mb, files int) {
	list, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if f := strings.Fields(rest); len(f) > 0 {
		kb, _ := strconv.Atoi(f[0])
		mb = kb / 1024
	}
	return mb, len(list)
}
