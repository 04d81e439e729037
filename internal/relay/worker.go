package relay

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxWorkers bounds how many goroutines carry connections: each waits for every
	// listening socket, which costs the kernel memory for each pair.
	maxWorkers = 8
	// eventsAtOnce bounds how many events a worker handles before it polls the sockets again, and
	// acceptsAtOnce how many clients it accepts from one socket in that time: in a storm on one
	// Service the connections of all others run after a few milliseconds.
	eventsAtOnce  = 128
	acceptsAtOnce = 8
)

// worker carries connections. The state of a connection is read and written by its
// worker's goroutine only, so that a connection needs no lock and no goroutine.
type worker struct {
	r     *Relay
	epoll int
	file  *os.File // the same descriptor in the poller of Go's runtime, to wait for it
	bell  int      // an eventfd: the inbox has something
	clock int      // a timerfd, which ticks while the wheel holds anything

	now     time.Duration // since the Relay began, of this round
	buf     []byte
	wheel   wheel
	ticking bool
	conns   []*conn // by place; nil for a place that is free
	uses    []int32 // how often a place was assigned: distinguishes a stale event from a present one
	free    []int32 // places
	again   []*conn // have run once, and have more to move
	knocks  []*Listener

	mu        sync.Mutex
	listeners map[int32]*Listener
	inbox     []*conn // to be ended
	stop      bool
	gone      bool // the files are closed: their numbers may be another's
}

// The marks of events that belong to no connection; connections have positive ones.
const (
	ofListener = -1
	ofBell     = -2
	ofClock    = -3
)

const edges = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

func newWorker(r *Relay) (w *worker, err error) {
	w = &worker{r: r, epoll: -1, bell: -1, clock: -1, buf: make([]byte, bufferBytes), listeners: map[int32]*Listener{}}
	defer func() {
		if err != nil {
			w.closeFiles()
		}
	}()
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if w.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	if w.clock, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	for fd, mark := range map[int]int32{w.bell: ofBell, w.clock: ofClock} {
		if err = w.watch(fd, unix.EPOLLIN, 0, mark); err != nil {
			return nil, err
		}
	}
	if err = unix.SetNonblock(w.epoll, true); err != nil { // so that the runtime waits for it
		return nil, os.NewSyscallError("set_nonblock", err)
	}
	w.file = os.NewFile(uintptr(w.epoll), "epoll")
	return w, nil
}

func (w *worker) watch(fd int, events uint32, id, mark int32) error {
	ev := unix.EpollEvent{Events: events, Fd: id, Pad: mark}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &ev))
}

// run carries connections until the Relay ends.
func (w *worker) run() {
	defer w.closeFiles()
	raw, err := w.file.SyscallConn()
	if err != nil { // of a closed file only
		return
	}
	events := make([]unix.EpollEvent, eventsAtOnce)
	for !w.round(events[:w.wait(raw, events)]) {
	}
}

// round handles the events. It returns true if the worker is to end.
func (w *worker) round(events []unix.EpollEvent) bool {
	w.now = time.Since(w.r.start)
	tick, rung := false, false
	for i := range events {
		switch ev := &events[i]; ev.Pad {
		case ofListener:
			w.knock(ev.Fd)
		case ofBell:
			rung = true
		case ofClock:
			tick = true
		default:
			w.happened(ev)
		}
	}
	// From here on no event is left that could belong to a descriptor that is closed.
	if tick {
		w.tick()
	}
	if rung && w.answer() {
		return true
	}
	w.goOn()
	w.open()
	return false
}

// wait returns the number of events. If there is none, and nothing is left to do, the goroutine
// sleeps in Go's own poller: its thread runs other goroutines in that time.
func (w *worker) wait(raw syscall.RawConn, events []unix.EpollEvent) (n int) {
	look := func(fd uintptr) bool {
		var err error
		for n, err = unix.EpollWait(int(fd), events, 0); err == unix.EINTR; {
			n, err = unix.EpollWait(int(fd), events, 0)
		}
		return n > 0 || len(w.again) > 0
	}
	_ = raw.Read(look) // the file is closed by this goroutine only
	return max(n, 0)
}

// ask makes the worker end connections; any goroutine may call it.
func (w *worker) ask(list ...*conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inbox = append(w.inbox, list...)
	w.ring()
}

// ring wakes the worker; mu is held.
func (w *worker) ring() {
	if !w.gone {
		_, _ = unix.Write(w.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// answer handles the requests of other goroutines. It returns true if the worker is to end.
func (w *worker) answer() bool {
	var count [8]byte
	_, _ = unix.Read(w.bell, count[:])
	w.mu.Lock()
	list, stop := w.inbox, w.stop
	w.inbox = nil
	w.mu.Unlock()
	for _, c := range list {
		if !c.over {
			c.abort()
			w.r.counts.gone.Add(1)
		}
	}
	if !stop {
		return false
	}
	for _, c := range w.conns {
		if c != nil {
			c.abort()
		}
	}
	return true
}

// end makes the worker abort its connections, and end.
func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = true
	w.ring()
}

func (w *worker) closeFiles() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, fd := range []int{w.bell, w.clock} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if w.file != nil {
		_ = w.file.Close()
	} else if w.epoll >= 0 {
		_ = unix.Close(w.epoll)
	}
}
