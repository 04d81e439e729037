package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"golang.org/x/sys/unix"
)

// serve answers for every pod: acceptPort closes at once, namePort returns the address that was reached.
func serve(h *netlab.Host) (stop func(), err error) {
	any := netip.IPv4Unspecified()
	names, err := h.Listen(context.Background(), netip.AddrPortFrom(any, namePort))
	if err != nil {
		return nil, err
	}
	accepts, err := h.Listen(context.Background(), netip.AddrPortFrom(any, acceptPort))
	if err != nil {
		names.Close()
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		accept(names, func(c net.Conn) {
			host, _, _ := net.SplitHostPort(c.LocalAddr().String()) // TCP addresses have this form
			_, _ = io.WriteString(c, host)
		})
	})
	wg.Go(func() { accept(accepts, func(net.Conn) {}) })
	return func() { names.Close(); accepts.Close(); wg.Wait() }, nil
}

func accept(l net.Listener, answer func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		answer(c)
		c.Close()
	}
}

// who connects and returns the address of the pod that was reached.
func who(ctx context.Context, from *netlab.Host, to netip.AddrPort) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	if err := steps(
		func() error { return c.(*net.TCPConn).SetLinger(0) },
		func() error { return c.SetDeadline(time.Now().Add(250 * time.Millisecond)) },
	); err != nil {
		return netip.Addr{}, err
	}
	b, err := io.ReadAll(io.LimitReader(c, 64))
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(string(b))
}

// reaches returns an error if no connection can be made.
func reaches(ctx context.Context, from *netlab.Host, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to.String())
	if err == nil {
		c.Close()
	}
	return err
}

// connects is the result of connects to one target in several rounds; times are in microseconds. The best round is the
// figure to compare on a machine with other work: other work makes rounds slower, never faster.
type connects struct {
	Made, Failed                  int
	BestP50Us, MedianP50Us, P99Us float64
}

const connectRounds = 30

// connectAll goes round the targets, so that a slow phase of the machine affects all of them.
func connectAll(from *netlab.Host, targets map[string]netip.AddrPort, each time.Duration) (map[string]connects, error) {
	names, all, p50s := slices.Sorted(maps.Keys(targets)), map[string]connects{}, map[string][]float64{}
	if each == 0 {
		return all, nil
	}
	for range connectRounds {
		for _, name := range names {
			took, failed, err := connectRound(from, targets[name], each/connectRounds)
			if err != nil {
				return nil, err
			}
			s, c := newSpread(took), all[name]
			c.Made, c.Failed, c.P99Us = c.Made+s.N, c.Failed+failed, max(c.P99Us, s.P99)
			all[name], p50s[name] = c, append(p50s[name], s.P50)
		}
	}
	for name, c := range all {
		s := newSpread(p50s[name])
		c.BestP50Us, c.MedianP50Us = s.Min, s.P50
		all[name] = c
	}
	return all, nil
}

// connectRound connects and resets, one connection after the other on one thread, with blocking system calls. The
// kernel's work for a new connection is then the largest part of the result.
func connectRound(from *netlab.Host, to netip.AddrPort, d time.Duration) (us []float64, failed int, err error) {
	err = from.Do(func() error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if took, err := connectOnce(to); err == nil {
				us = append(us, took)
			} else if failed++; failed >= 1000 || len(us) == 0 {
				return fmt.Errorf("connect to %s: %w (%d times)", to, err, failed)
			}
		}
		return nil
	})
	return us, failed, err
}

func connectOnce(to netip.AddrPort) (us float64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	// A reset leaves no TIME_WAIT, so that ports are not exhausted.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return 0, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return 0, err
	}
	start := time.Now()
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	return float64(time.Since(start).Nanoseconds()) / 1000, err
}
