package handover

import (
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// itemShelf is the Kind of a Shelf's Items; Key: network and address.
const itemShelf = "shelf"

// Shelf opens a process's listening sockets and keeps track of them. The successor
// continues with the same sockets, so that requests during the handover wait in the
// kernel's queue. The zero value is empty.
type Shelf struct {
	mu   sync.Mutex
	open []shelved
	had  map[string][]*os.File // sockets of the predecessor that are not reopened yet
}

type shelved struct {
	key  string
	sock filer
}

type filer interface {
	syscall.Conn
	File() (*os.File, error)
}

// Listen opens a stream socket, or returns the one that the predecessor handed over.
func (s *Shelf) Listen(ctx context.Context, c net.ListenConfig, network, addr string) (net.Listener, error) {
	return shelve(s, network+" "+addr, net.FileListener, func() (net.Listener, error) { return c.Listen(ctx, network, addr) })
}

// ListenPacket does the same for datagrams.
func (s *Shelf) ListenPacket(ctx context.Context, c net.ListenConfig, network, addr string) (net.PacketConn, error) {
	return shelve(s, network+" "+addr, net.FilePacketConn, func() (net.PacketConn, error) { return c.ListenPacket(ctx, network, addr) })
}

func shelve[S any](s *Shelf, key string, again func(*os.File) (S, error), fresh func() (S, error)) (sock S, err error) {
	f := s.take(key)
	if f != nil {
		sock, err = again(f)
		_ = f.Close()
	}
	if f == nil || err != nil {
		sock, err = fresh()
	}
	if known, ok := any(sock).(filer); ok && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = append(slices.DeleteFunc(s.open, func(x shelved) bool { return closed(x.sock) }), shelved{key, known})
	}
	return sock, err
}

// closed reports whether its owner has closed a socket.
func closed(c filer) bool {
	raw, err := c.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// take returns a socket that the predecessor handed over; nil if there is none.
func (s *Shelf) take(key string) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.had[key]
	if len(list) == 0 {
		return nil
	}
	s.had[key] = list[1:]
	return list[0]
}

// Estate calls emit for each open socket; see Giver.
func (s *Shelf) Estate(emit func(Item) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.open {
		f, err := x.sock.File()
		if err != nil { // closed
			continue
		}
		if err := emit(Item{Kind: itemShelf, Key: x.key, File: f}); err != nil {
			return err
		}
	}
	return nil
}

// Inherit takes over the Items that come from a Shelf, and ignores all others. It
// duplicates the files: the caller still owns the Items' files.
func (s *Shelf) Inherit(items []Item) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.had = map[string][]*os.File{}
	for i := range items {
		it := &items[i]
		if it.Kind != itemShelf || it.File == nil {
			continue
		}
		fd, err := number(it.File)
		if err == nil {
			fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
		if err != nil {
			return err
		}
		s.had[it.Key] = append(s.had[it.Key], os.NewFile(uintptr(fd), it.Key))
	}
	return nil
}

// Drop closes the inherited sockets that were not reopened: clients are refused there again.
func (s *Shelf) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.had {
		for _, f := range list {
			_ = f.Close()
		}
	}
	s.had = nil
}
