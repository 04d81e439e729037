package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Raw system calls on one thread: otherwise the work of the Go runtime around a blocking call would be measured too. These
// processes run nothing else, so they need no further thread.

func address(s string) (*unix.SockaddrInet4, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !a.Addr().Is4() {
		return nil, fmt.Errorf("%q is no IPv4 address with a port", s)
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}, nil
}

// buffer is the number of bytes that streams send and receive at once.
const buffer = 128 << 10

// datagram is the payload that fills an Ethernet frame.
const datagram = 1472

// window is how many datagrams the client sends before it waits for an answer: with this number none is lost.
const window = 16

func raw(call, a, b, c uintptr) (int, error) {
	n, _, e := unix.RawSyscall(call, a, b, c)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

func read(fd int, buf []byte) (int, error) {
	return raw(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
}

func write(fd int, buf []byte) (int, error) {
	return raw(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
}

func closeSocket(fd int) error {
	_, err := raw(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return err
}

// connect connects to an IPv4 address.
func connect(fd int, to *unix.SockaddrInet4) error {
	sa := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: uint16(to.Port)>>8 | uint16(to.Port)<<8, Addr: to.Addr}
	_, err := raw(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
	return err
}

// noDelay disables Nagle's algorithm, so that data is sent at once.
func noDelay(fd int) { _ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) } // a failure has no effect on the result

func socket(kind int) (int, error) {
	fd, err := raw(unix.SYS_SOCKET, unix.AF_INET, uintptr(kind|unix.SOCK_CLOEXEC), 0)
	if err == nil && kind == unix.SOCK_STREAM {
		noDelay(fd)
	}
	return fd, err
}

func serveAt(what, at string) error {
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	to, err := address(at)
	if err != nil {
		return err
	}
	kind := unix.SOCK_STREAM
	if what == "udpecho" || what == "udpsink" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := socket(kind)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, to)); err != nil {
		return fmt.Errorf("bind %s: %w", at, err)
	}
	buf := make([]byte, buffer)
	if kind == unix.SOCK_DGRAM {
		return serveDatagrams(fd, what, buf)
	}
	if err := unix.Listen(fd, 128); err != nil {
		return err
	}
	for { // one connection after the other, as the clients do them
		c, err := raw(unix.SYS_ACCEPT, uintptr(fd), 0, 0)
		if err != nil {
			return err
		}
		noDelay(c) // the client sets it too
		serveOne(c, what, buf)
		_ = closeSocket(c)
	}
}

// serveOne serves a connection to its end. The client reports errors.
func serveOne(c int, what string, buf []byte) {
	for {
		n, err := read(c, buf)
		if err != nil || n <= 0 {
			return
		}
		switch what {
		case "echo":
			if _, err := write(c, buf[:n]); err != nil {
				return
			}
		case "source":
			for left := int(binary.BigEndian.Uint64(buf)); left > 0; {
				n, err := write(c, buf[:min(left, buffer)])
				if err != nil {
					return
				}
				left -= n
			}
		}
	}
}

func serveDatagrams(fd int, what string, buf []byte) error {
	for got := 1; ; got++ {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return err
		}
		if what == "udpecho" || got%window == 0 {
			if err := unix.Sendto(fd, buf[:min(n, 1)], 0, from); err != nil {
				return err
			}
		}
	}
}

// clock returns the guest's time, which counts instructions.
func clock() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock always exists
	return time.Duration(t.Nano())
}

// driveAt does the work and prints how many nanoseconds it took.
func driveAt(what, at string, n, size int) error {
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	to, err := address(at)
	if err != nil {
		return err
	}
	d := driver{to: to, buf: make([]byte, buffer)}
	do, known := map[string]func(int) error{
		"crr": d.crr, "rr": d.rr, "stream": d.stream, "udprr": d.rr, "udpstream": d.datagrams,
		"fetch": func(n int) error { return d.fetch(n, size) },
	}[what]
	if !known {
		return fmt.Errorf("nothing is called %q", what)
	}
	d.kind = unix.SOCK_STREAM
	if what == "udprr" || what == "udpstream" {
		d.kind = unix.SOCK_DGRAM
	}
	before := clock()
	if err := do(n); err != nil {
		return fmt.Errorf("%s to %s: %w", what, at, err)
	}
	fmt.Println((clock() - before).Nanoseconds())
	return nil
}

type driver struct {
	to   *unix.SockaddrInet4
	kind int
	buf  []byte
}

func (d *driver) dial() (int, error) {
	fd, err := socket(d.kind)
	if err != nil {
		return 0, err
	}
	return fd, connect(fd, d.to)
}

// ask sends bytes and reads one answer.
func (d *driver) ask(fd, bytes int) error {
	if _, err := write(fd, d.buf[:bytes]); err != nil {
		return err
	}
	n, err := read(fd, d.buf)
	if err == nil && n == 0 {
		err = errors.New("the connection was closed")
	}
	return err
}

// crr is netperf's TCP_CRR: connect, one byte each way, close.
func (d *driver) crr(n int) error {
	for range n {
		fd, err := d.dial()
		if err == nil {
			err = d.ask(fd, 1)
		}
		if err := errors.Join(err, closeSocket(fd)); err != nil {
			return err
		}
	}
	return nil
}

// rr is netperf's TCP_RR and UDP_RR: one byte each way on one connection.
func (d *driver) rr(n int) error {
	fd, err := d.dial()
	for i := 0; i < n && err == nil; i++ {
		err = d.ask(fd, 1)
	}
	return errors.Join(err, closeSocket(fd))
}

// stream is TCP_STREAM: n bytes to a server that has read them all before it closes.
func (d *driver) stream(n int) error {
	fd, err := d.dial()
	for left := n; left > 0 && err == nil; {
		var wrote int
		wrote, err = write(fd, d.buf[:min(left, buffer)])
		left -= wrote
	}
	if err == nil {
		err = unix.Shutdown(fd, unix.SHUT_WR)
	}
	if err == nil {
		_, err = read(fd, d.buf)
	}
	return errors.Join(err, closeSocket(fd))
}

// datagrams is UDP_STREAM with a window.
func (d *driver) datagrams(n int) error {
	fd, err := d.dial()
	for sent := 0; sent < n && err == nil; {
		for range window - 1 {
			if _, err = write(fd, d.buf[:datagram]); err != nil {
				break
			}
		}
		if err == nil {
			err = d.ask(fd, datagram)
		}
		sent += window * datagram
	}
	return errors.Join(err, closeSocket(fd))
}

// fetch makes n connections and reads size bytes from each.
func (d *driver) fetch(n, size int) error {
	for range n {
		fd, err := d.dial()
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(d.buf, uint64(size))
		_, err = write(fd, d.buf[:8])
		for left := size; left > 0 && err == nil; {
			var got int
			if got, err = read(fd, d.buf); got == 0 && err == nil {
				err = errors.New("the connection was closed")
			}
			left -= got
		}
		if err := errors.Join(err, closeSocket(fd)); err != nil {
			return err
		}
	}
	return nil
}
