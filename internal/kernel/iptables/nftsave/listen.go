package nftsave

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

const (
	// heardBytes is the receive buffer; the kernel doubles it. A commit of
	// 5000 rules takes 2 MB, one of a single rule 2 KB. The kernel allocates it only for queued messages.
	heardBytes = 4 << 20
	// datagramBytes is more than the largest notification of the kernel (NLMSG_GOODSIZE).
	datagramBytes = 16 << 10
	// maxHeard bounds the datagrams that one Hear reads: more than the buffer holds.
	maxHeard = 1 << 16
	// maxPlaces bounds the chains that a Commit names.
	maxPlaces = 1 << 14
)

// Commit is what the kernel reports of one commit to nf_tables.
type Commit struct {
	Generation uint32 // the resulting generation
	// Places are the chains of iptables' tables that the commit may have changed. The
	// slice is valid until the callback returns.
	Places []Place
	// Opaque: the commit may have changed any other chain too.
	Opaque bool
}

// Place identifies a chain.
type Place struct {
	Family       xt.Family
	Table, Chain string
}

// Listener observes the commits to nf_tables and the chains that they change, without blocking:
// the kernel queues the notifications until Hear reads them. While a listener exists, the kernel writes a
// message for each object of each commit, so a caller should stop listening during its own large commits.
// A Listener must be used by one goroutine at a time.
type Listener struct {
	d      dumper
	wrap   func(netlink.Wire) netlink.Wire
	socket *netlink.Socket // nil: not listening
	wire   netlink.Wire    // socket, or its wrapper
	buf    []byte
	since  uint32 // commits up to this generation may have been received incompletely
	now    Commit // the commit whose messages are being received
}

// OpenListener returns a Listener that does not listen yet. It needs the privileges of Open.
func OpenListener(cfg Config) (*Listener, error) {
	conn, err := netlink.Open(netlink.Config{NetNS: cfg.NetNS, Wrap: cfg.Wrap})
	if err != nil {
		return nil, err
	}
	return &Listener{d: dumper{conn: conn}, wrap: cfg.Wrap, buf: make([]byte, datagramBytes)}, nil
}

// Close closes the sockets.
func (l *Listener) Close() error {
	l.Stop()
	return l.d.conn.Close()
}

// Listening reports whether the Listener receives commits.
func (l *Listener) Listening() bool { return l.socket != nil }

// Stop ends listening. Notifications that were not read are lost.
func (l *Listener) Stop() {
	if l.socket != nil {
		_ = l.socket.Close() // nothing was written to it
	}
	l.socket, l.wire = nil, nil
}

// Listen starts listening and returns the generation after which all commits are received. If
// it is listening already, it restarts.
func (l *Listener) Listen(ctx context.Context) (generation uint32, err error) {
	l.Stop()
	l.now = Commit{Places: l.now.Places[:0]}
	s, err := l.d.conn.Dial(netlink.Options{ReceiveBuffer: heardBytes})
	if err != nil {
		return 0, fmt.Errorf("listen to nf_tables: %w", err)
	}
	l.socket, l.wire = s, s
	if l.wrap != nil {
		l.wire = l.wrap(s)
	}
	if err = s.Join(unix.NFNLGRP_NFTABLES); err == nil {
		// The kernel sets the new generation before it sends the notifications of a commit, so
		// every commit that was received in part has a generation up to this one.
		l.since, err = l.d.generation(ctx)
	}
	if err != nil {
		l.Stop()
		return 0, fmt.Errorf("listen to nf_tables: %w", err)
	}
	return l.since, nil
}

// Hear calls told for each commit that has begun since Listen or the last Hear, in order, and
// returns a generation up to which all commits were reported. After an error the Listener has stopped, and
// some commits may be unreported.
func (l *Listener) Hear(ctx context.Context, told func(Commit)) (generation uint32, err error) {
	defer func() {
		if err != nil {
			l.Stop()
			err = fmt.Errorf("listen to nf_tables: %w", err)
		}
	}()
	if err := l.d.settle(ctx); err != nil { // a commit has sent all its notifications when it ends
		return 0, err
	}
	for range maxHeard {
		n, err := l.wire.Receive(l.buf, false)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return l.d.settled, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ENOBUFS: a notification was lost
			return 0, err
		case n > len(l.buf):
			return 0, fmt.Errorf("a notification of %d bytes", n)
		}
		if err := netlink.Each(l.buf[:n], func(m netlink.Message) { l.take(m, told) }); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("notifications arrive faster than they are read")
}
