package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"golang.org/x/sys/unix"
)

// serve answers for every pod: acceptPort closes at once, namePort says which address was reached.
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

// reaches says whether a connection can be made at all.
func reaches(ctx context.Context, from *netlab.Host, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", to.String())
	if err == nil {
		c.Close()
	}
	return err
}

// connects is the result of a connect loop; times are in microseconds.
type connects struct {
	Made, Failed         int
	MeanUs, P50Us, P99Us float64
}

// connectLoop connects and resets, one connection after the other on one thread, with blocking system calls: what the
// kernel does with a new connection is then most of what is measured.
func connectLoop(from *netlab.Host, to netip.AddrPort, d time.Duration) (r connects, err error) {
	var took []float64
	err = from.Do(func() error {
		for end := time.Now().Add(d); time.Now().Before(end); {
			us, err := connectOnce(to)
			if err != nil {
				if r.Failed++; r.Failed > 1000 && len(took) == 0 {
					return fmt.Errorf("connect to %s: %w", to, err)
				}
				continue
			}
			took = append(took, us)
		}
		return nil
	})
	if err != nil || len(took) == 0 {
		return r, err
	}
	slices.Sort(took)
	var sum float64
	for _, t := range took {
		sum += t
	}
	r.Made, r.MeanUs, r.P50Us, r.P99Us = len(took), sum/float64(len(took)), took[len(took)/2], took[len(took)*99/100]
	return r, nil
}

func connectOnce(to netip.AddrPort) (us float64, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	// A reset leaves no TIME_WAIT behind, so the ports do not run out.
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
