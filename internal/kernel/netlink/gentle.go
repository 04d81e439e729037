package netlink

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restAfter is the interval between two rests. Much is read that is not urgent, by programs that have other work at the same
// time. On one processor, a goroutine that reads without a pause blocks the others for ten milliseconds at a time, until the Go
// scheduler preempts it; and while it reads, the scheduler rarely polls sockets and files. On more processors another
// one polls them, and a rest would only disturb that one: a change during an audit then took half as long again.
const restAfter = 500 * time.Microsecond

// Rest yields to other goroutines at intervals, if there is only one processor. The zero value is ready for use, by one goroutine.
type Rest struct {
	woke time.Time
	// bell is an eventfd that the garbage collector closes; nil: not opened (yet).
	bell syscall.RawConn
}

// Pause is called between two small pieces of work. In most calls it returns at once.
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

// ring returns once the Go scheduler has reported the eventfd as readable: it has then polled all other files and sockets, and
// woken their goroutines. That takes some microseconds. A time.Sleep has the same effect, but takes at least a millisecond on an
// idle processor, because the scheduler's own sleep has that resolution. The written value need not be read: each
// write is reported once.
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

// Gently is a Config.Wrap for a Conn whose large reads are not urgent.
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
