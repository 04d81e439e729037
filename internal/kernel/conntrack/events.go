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

// Event is a flow that has begun, with its first packet past all hooks, or that has ended.
type Event struct {
	Flow
	Ended bool
	// Sent and Received are the bytes of the client and of its answers, with the headers of IP. They are known of a flow that
	// ended and that began while nf_conntrack_acct was on; otherwise 0.
	Sent, Received uint64
}

// eventBytes is the receive buffer of Events (the kernel doubles it). An event takes about 900 bytes of it, so it holds some
// 70 000 that come while nobody reads. It is memory only while it is in use.
const eventBytes = 32 << 20

// Events hears of the flows of one network namespace.
type Events struct {
	conn *netlink.Conn
	sock *netlink.Socket
}

// OpenEvents begins to listen in the network namespace of the calling thread. With onlyDNAT the kernel wakes nobody for flows
// whose destination no rule of netfilter has translated (IPVS translates without such a rule).
//
// A flow that began before has no end told, unless somebody else listened already: with net.netfilter.nf_conntrack_events=2,
// the kernel's own choice since 5.19, it prepares events only for flows that begin while somebody listens.
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

// Close ends it.
func (e *Events) Close() error { return errors.Join(e.sock.Close(), e.conn.Close()) }

// Follow reports of each flow that begins or ends, until ctx ends. lost is told each time that the kernel had no room for events:
// some are then missing.
func (e *Events) Follow(ctx context.Context, take func(*Event), lost func()) error {
	stop := context.AfterFunc(ctx, func() { _ = e.sock.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return readEvents(ctx, e.sock, take, lost)
}

const (
	// maxBadReads bounds how many reads in a row may fail.
	maxBadReads = 100
	// gather is how long events may lie after the first: to be woken for each costs more than to read it.
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
	return errors.New("read conntrack events: nothing can be read")
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

// translatedOnly is a filter for events of flows whose status has the bit of a translated destination. An event is a datagram of
// its own: header of netlink, header of nfnetlink, attributes.
func translatedOnly() []unix.SockFilter {
	const (
		attrs = headerLen + nfgenLen
		// SKF_AD_OFF+SKF_AD_NLATTR (linux/filter.h): looks from A on for the attribute X, and gives its offset or 0.
		findAttr = 0x1_0000_0000 - 0x1000 + 12
	)
	return []unix.SockFilter{
		{Code: unix.BPF_LDX | unix.BPF_W | unix.BPF_IMM, K: ctaStatus},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IMM, K: attrs},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: findAttr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 3, K: 0},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: 4}, // behind the attribute's header, big endian
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 1, K: statusDNAT},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
}
