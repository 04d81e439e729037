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
	// heardBytes is how much the kernel may keep until it is heard; it doubles it. A commit of
	// 5000 rules takes 2 MB, one of a single rule 2 KB. It is memory only while it is in use.
	heardBytes = 4 << 20
	// datagramBytes is more than the kernel puts into one notification (NLMSG_GOODSIZE).
	datagramBytes = 16 << 10
	// maxHeard bounds how many datagrams one hearing takes: more than that buffer holds.
	maxHeard = 1 << 16
	// maxPlaces bounds how many chains a Commit names.
	maxPlaces = 1 << 14
)

// Commit is what the kernel tells of one commit to nf_tables.
type Commit struct {
	Generation uint32 // that it made
	// Places are the chains of iptables' tables in which it may have changed something. The
	// slice is valid until the callback returns.
	Places []Place
	// Opaque: it may have changed any other chain too.
	Opaque bool
}

// Place is a chain.
type Place struct {
	Family       xt.Family
	Table, Chain string
}

// Listener hears who commits to nf_tables and where, without waiting: the kernel keeps what
// it tells until it is asked for. While anybody listens the kernel writes a message for each
// object of each commit, so whoever commits much himself does not listen meanwhile. One
// goroutine uses a Listener at a time.
type Listener struct {
	d      dumper
	wrap   func(netlink.Wire) netlink.Wire
	socket *netlink.Socket // nil: it does not listen
	wire   netlink.Wire    // socket, or what wrap made of it
	buf    []byte
	since  uint32 // of commits up to this generation a part may not have been heard
	now    Commit // the one whose messages are coming in
}

// OpenListener opens a Listener that does not listen yet. It needs what Open needs.
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

// Listening reports whether commits are heard.
func (l *Listener) Listening() bool { return l.socket != nil }

// Stop ends listening. What was not heard is lost.
func (l *Listener) Stop() {
	if l.socket != nil {
		_ = l.socket.Close() // nothing was written to it
	}
	l.socket, l.wire = nil, nil
}

// Listen begins to listen and gives the generation after which all commits are heard. It
// begins anew if it listens already.
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
		// A commit makes its generation the present one before it tells anything, so that
		// none of which a part was missed has a later one.
		l.since, err = l.d.generation(ctx)
	}
	if err != nil {
		l.Stop()
		return 0, fmt.Errorf("listen to nf_tables: %w", err)
	}
	return l.since, nil
}

// Hear reports of all commits that have begun since Listen or the last Hear, in their order, and
// gives a generation up to which these are. After an error it does not listen any more, and
// there may be commits of which nothing was told.
func (l *Listener) Hear(ctx context.Context, told func(Commit)) (generation uint32, err error) {
	defer func() {
		if err != nil {
			l.Stop()
			err = fmt.Errorf("listen to nf_tables: %w", err)
		}
	}()
	if err := l.d.settle(ctx); err != nil { // a commit has told all when it ends
		return 0, err
	}
	for range maxHeard {
		n, err := l.wire.Receive(l.buf, false)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return l.d.settled, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ENOBUFS: something was lost
			return 0, err
		case n > len(l.buf):
			return 0, fmt.Errorf("a notification of %d bytes", n)
		}
		if err := netlink.Each(l.buf[:n], func(m netlink.Message) { l.take(m, told) }); err != nil {
			return 0, err
		}
	}
	return 0, errors.New("there is no end of notifications")
}
