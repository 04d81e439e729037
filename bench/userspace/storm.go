package main

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// storm runs a storm on a Service; see storming.
func storm(at netip.AddrPort, s storming, stop <-chan struct{}, attempts *tries) (err error) {
	var all sync.WaitGroup
	if s.perSecond > 0 {
		all.Go(func() { err = flood(at, s.from, s.perSecond, stop, &attempts.all) })
	}
	all.Go(func() { connections(at, s, stop, attempts) })
	all.Wait()
	return err
}

// connections connects and resets at once, as fast as it can, with four system calls for
// each attempt. Its threads run at a lower priority: clients that storm a machine do not
// have that machine's processors.
func connections(at netip.AddrPort, s storming, stop <-chan struct{}, attempts *tries) {
	to := &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	var all sync.WaitGroup
	for range s.threads {
		all.Go(func() {
			runtime.LockOSThread() // the thread and its priority end with the goroutine
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, s.nice)
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
				attempts.all.Add(1)
				attempts.whole.Add(1)
			}
		})
	}
	all.Wait()
}

// hold keeps connections open that send a byte and read nothing, and replaces each
// connection that was ended.
func hold(at netip.AddrPort, holders int, stop <-chan struct{}, attempts *tries) {
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			for {
				c, err := net.DialTimeout("tcp", at.String(), patience)
				attempts.all.Add(1)
				attempts.whole.Add(1)
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
				case <-time.After(20 * time.Millisecond): // retry
				}
			}
		})
	}
	all.Wait()
}
