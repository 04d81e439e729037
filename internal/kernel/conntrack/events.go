package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// Event is a flow that has begun, after its first packet passed all hooks, or that has ended.
type Event struct {
	Flow
	Ended bool
	// Sent and Received are the bytes from the client and to it, including IP headers. They are set for a flow that has
	// ended and that began while nf_conntrack_acct was on; otherwise 0.
	Sent, Received uint64
}

// eventBytes is the receive buffer of Events (the kernel doubles it). An event takes about 900 bytes of it, so it holds about
// 70 000 unread events. The kernel allocates it only for queued events.
const eventBytes = 32 << 20

// Events is a subscription to the flows of one network namespace.
type Events struct {
	conn *netlink.Conn
	sock *netlink.Socket
}

// OpenEvents subscribes to the flows of the network namespace of the calling thread. With onlyDNAT the kernel drops the events of
// flows whose destination no rule of netfilter has translated, so that they do not wake the reader (IPVS translates without such a rule).
//
// The end of a flow that began before the subscription is reported only if another program was subscribed already. With
// net.netfilter.nf_conntrack_events=2, the default since 5.19, the kernel prepares events only for flows that begin while a
// subscriber exists.
func OpenEvents(onlyDNAT bool) (*Events, error) {
	c, err := netlink.Open(netlink.Config{})
	if err != nil {
		return nil, fmt.Errorf("listen to conntrack: %w", err)
	}
	s, err := c.Dial(netlink.Options{ReceiveBuffer: eventBytes})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to conntrack: %w", err), c.Close())
	}
	e := &Events{c, s}
	if onlyDNAT {
		err = s.Filter(translatedOnly())
	}
	for _, group := range [...]uint32{groupNew, groupDestroy} {
		err = errors.Join(err, s.Join(group))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to conntrack: %w", err), e.Close())
	}
	return e, nil
}

// Close ends the subscription.
func (e *Events) Close() error { return errors.Join(e.sock.Close(), e.conn.Close()) }

// Follow calls take for each flow that begins or ends, until ctx ends. It calls lost each time that the receive buffer overflowed:
// some events are then missing.
func (e *Events) Follow(ctx context.Context, take func(*Event), lost func()) error {
	stop := context.AfterFunc(ctx, func() { _ = e.sock.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return readEvents(ctx, e.sock, take, lost)
}

const (
	// maxBadReads bounds the consecutive failed reads.
	maxBadReads = 100
	// gather is the delay after the first event of a batch: a wakeup per event would cost more than reading it.
	gather = 5 * time.Millisecond
)

func readEvents(ctx context.Context, w netlink.Wire, take func(*Event), lost func()) error {
	buf := make([]byte, 64<<10)
	bad, wait := 0, true
	each := func(m netlink.Message) {
		if e, ok := decodeEvent(m); ok {
			take(&e)
		}
	}
	for bad < maxBadReads {
		n, err := w.Receive(buf, wait)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n <= len(buf) && netlink.Each(buf[:n], each) == nil:
			if bad = 0; wait {
				pause(ctx, gather)
				wait = false
			}
		case errors.Is(err, unix.EAGAIN):
			wait = true
		case errors.Is(err, unix.EINTR):
			bad++
		case err == nil, errors.Is(err, unix.ENOBUFS):
			bad++
			lost()
		default:
			return fmt.Errorf("read conntrack events: %w", err)
		}
	}
	return errors.New("read conntrack events: no data")
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func decodeEvent(m netlink.Message) (e Event, ok bool) {
	switch m.Type {
	case msgDelete:
		e.Ended = true
	case msgNew:
	default:
		return e, false
	}
	if e.Flow, ok = decodeFlow(m.Body); !ok || !e.Ended {
		return e, ok
	}
	netlink.EachAttr(m.Body[nfgenLen:], func(typ uint16, d []byte) {
		switch typ {
		case ctaCountOrig:
			e.Sent = countedBytes(d)
		case ctaCountReply:
			e.Received = countedBytes(d)
		}
	})
	return e, true
}

func countedBytes(counters []byte) (n uint64) {
	netlink.EachAttr(counters, func(typ uint16, d []byte) {
		if typ == ctaCountBytes && len(d) >= 8 {
			n = binary.BigEndian.Uint64(d)
		}
	})
	return n
}

// translatedOnly returns a filter for events of flows whose status has the bit of a translated destination. Each event is a separate
// datagram: netlink header, nfnetlink header, attributes.
func translatedOnly() []unix.SockFilter {
	const (
		attrs = headerLen + nfgenLen
		// SKF_AD_OFF+SKF_AD_NLATTR (linux/filter.h): searches for the attribute X from offset A on, and returns its offset or 0.
		findAttr = 0x1_0000_0000 - 0x1000 + 12
	)
	return []unix.SockFilter{
		{Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_IMM, K: ctaStatus},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IMM, K: attrs},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: findAttr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 3, K: 0},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: 4}, // after the attribute's header, big endian
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 1, K: statusDNAT},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
}
