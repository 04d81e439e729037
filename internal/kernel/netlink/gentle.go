package netlink

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Much is read that nobody waits for, by programs that have other work at the same time. Where they have one processor, a
// goroutine that reads without a pause keeps the others from it for ten milliseconds at a time, until the Go scheduler takes
// it away; and while nobody waits, what comes by a socket or a file is noticed as seldom. Where they have more, another
// one notices it, and each rest would only disturb that one: a change beside an audit then took half as long again.
const restAfter = 500 * time.Microsecond

// Rest lets others go first now and then, where there is one processor for all. The zero value is ready for use, by one goroutine.
type Rest struct {
	woke time.Time
	// bell is an eventfd that closes itself when nobody has it any more; nil: there is none (yet).
	bell syscall.RawConn
}

// Pause is called between two small pieces of work. Mostly it does nothing.
func (r *Rest) Pause() {
	if time.Since(r.woke) < restAfter {
		return
	}
	if runtime.GOMAXPROCS(0) == 1 {
		r.giveWay()
	}
	r.woke = time.Now()
}

func (r *Rest) giveWay() {
	if r.bell == nil {
		r.bell = newBell()
	}
	if r.bell == nil || ring(r.bell) != nil {
		runtime.Gosched()
	}
}

func newBell() syscall.RawConn {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	raw, err := os.NewFile(uintptr(fd), "bell").SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// ring goes on when the Go scheduler has heard of it, so when it has looked what else has come by files and sockets, and who
// can go on. That takes some microseconds. A time.Sleep does the same, but never takes less than a millisecond where
// nobody else has anything to do, because the scheduler's own sleep counts in these. What is written need not be read: each
// writing is told once.
func ring(bell syscall.RawConn) (err error) {
	rung := false
	waited := bell.Read(func(fd uintptr) bool {
		if rung {
			return true
		}
		rung = true
		_, err = unix.Write(int(fd), binary.NativeEndian.AppendUint64(nil, 1))
		return err != nil
	})
	if err == nil {
		err = waited
	}
	return err
}

// Gently is a Config.Wrap for a Conn that reads much and may take its time.
func Gently(w Wire) Wire { return &gentle{Wire: w} }

type gentle struct {
	Wire
	rest Rest
}

// Receive implements Wire.
func (g *gentle) Receive(buf []byte, wait bool) (int, error) {
	g.rest.Pause()
	return g.Wire.Receive(buf, wait)
}
