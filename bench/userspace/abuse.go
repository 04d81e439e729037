package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ports are where the Services of the abuse are answered, on one address: one that is
// well, and those that are stormed, whose endpoint never answers and whose clients never
// read.
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

// mishap is one kind of abuse; it goes on until stop is closed.
type mishap struct {
	name string
	run  func(p ports, stop <-chan struct{}, attempts *atomic.Int64)
}

// seen is what one slice of one mishap has given.
type seen struct {
	through, direct []time.Duration
	failed          int
	attempts        float64 // a second
	memory          int     // MB, at most
	files           int     // descriptors, at most
}

func mishaps(generators, nice, holders int) []mishap {
	return []mishap{
		{"nothing", func(_ ports, stop <-chan struct{}, _ *atomic.Int64) { <-stop }},
		{"storm", func(p ports, stop <-chan struct{}, n *atomic.Int64) { storm(p.stormed, generators, nice, stop, n) }},
		{"endpoint never answers", func(p ports, stop <-chan struct{}, n *atomic.Int64) { hold(p.silent, holders, stop, n) }},
		{"clients never read", func(p ports, stop <-chan struct{}, n *atomic.Int64) { hold(p.endless, holders, stop, n) }},
	}
}

// abuse does one thing after the other to the proxy, and asks a Service that is well
// meanwhile: each client asks through the proxy, then the endpoint itself, and so on, so
// that both see the same machine.
func abuse(all []mishap, pid int, p ports, endpoint string, length time.Duration, rounds int) {
	got := make([][]seen, len(all))
	for range rounds {
		for i := range all {
			got[i] = append(got[i], suffer(&all[i], pid, p, endpoint, length))
		}
	}
	fmt.Println("| | attempts/s | p50 through ms | p99 through ms | p50 direct ms | p99 direct ms | p99 through/direct | failed | MB at most | descriptors at most |\n|---|---|---|---|---|---|---|---|---|---|")
	for i := range all {
		var sum seen
		for _, s := range got[i] {
			sum.through, sum.direct = append(sum.through, s.through...), append(sum.direct, s.direct...)
			sum.failed += s.failed
			sum.attempts += s.attempts / float64(rounds)
			sum.memory, sum.files = max(sum.memory, s.memory), max(sum.files, s.files)
		}
		a, b := quantile(sum.through, 99), quantile(sum.direct, 99)
		fmt.Printf("| %s | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %d | %d | %d |\n", all[i].name, sum.attempts,
			millis(quantile(sum.through, 50)), millis(a), millis(quantile(sum.direct, 50)), millis(b), float64(a)/float64(b), sum.failed, sum.memory, sum.files)
	}
	time.Sleep(time.Second) // what was ended is closed
	m, f := held(pid)
	fmt.Printf("\nA second after the last one: %d MB, %d descriptors.\n", m, f)
}

func quantile(list []time.Duration, percent int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)*percent/100]
}

func suffer(m *mishap, pid int, p ports, endpoint string, length time.Duration) (out seen) {
	stop := make(chan struct{})
	var attempts atomic.Int64
	var doing, asking sync.WaitGroup
	doing.Go(func() { m.run(p, stop, &attempts) })
	time.Sleep(length / 4) // until it is under way
	begin, before := time.Now(), attempts.Load()
	var mu sync.Mutex
	for range 4 {
		asking.Go(func() {
			for time.Since(begin) < length {
				a, err := timed(p.well.String())
				b, direct := timed(endpoint)
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
				time.Sleep(2 * time.Millisecond) // a client with something else to do
			}
		})
	}
	for time.Since(begin) < length {
		mb, files := held(pid)
		out.memory, out.files = max(out.memory, mb), max(out.files, files)
		time.Sleep(100 * time.Millisecond)
	}
	asking.Wait()
	out.attempts = float64(attempts.Load()-before) / time.Since(begin).Seconds()
	close(stop)
	doing.Wait()
	return out
}

func timed(to string) (time.Duration, error) {
	at := time.Now()
	err := visit(to)
	return time.Since(at), err
}

// held is the resident memory in MB and the descriptors of a process.
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

// storm connects and resets at once, as fast as it can, with four system calls for each
// attempt. Its threads are nice: those who storm a machine do not have its processors.
func storm(at netip.AddrPort, generators, nice int, stop <-chan struct{}, attempts *atomic.Int64) {
	to := &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	var all sync.WaitGroup
	for range generators {
		all.Go(func() {
			runtime.LockOSThread() // it ends with the goroutine, nice as it is
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, nice)
			for n := 0; ; n++ {
				if n%64 == 0 {
					select {
					case <-stop:
						return
					default:
					}
				}
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					time.Sleep(time.Millisecond) // out of descriptors or memory
					continue
				}
				_ = unix.Connect(fd, to)
				_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
				_ = unix.Close(fd)
				attempts.Add(1)
			}
		})
	}
	all.Wait()
}

// hold keeps connections open that send a byte and read nothing, and opens one anew where
// one was ended.
func hold(at netip.AddrPort, holders int, stop <-chan struct{}, attempts *atomic.Int64) {
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			for {
				c, err := net.DialTimeout("tcp", at.String(), patience)
				attempts.Add(1)
				if err == nil {
					_, err = c.Write([]byte("x"))
				}
				for err == nil { // until it is ended: a write then fails
					select {
					case <-stop:
						_ = c.(*net.TCPConn).SetLinger(0)
						_ = c.Close()
						return
					case <-time.After(200 * time.Millisecond):
						_, err = c.Write([]byte("x"))
					}
				}
				if c != nil {
					_ = c.Close()
				}
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond): // again
				}
			}
		})
	}
	all.Wait()
}
