package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/patience"
)

// Protocol is a transport protocol, in lower case as the scenario files spell it.
type Protocol string

// The transport protocols that a Service port may have.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Outcome is the result class of a request.
type Outcome string

// All results of a request. Closed means that the peer closed an established connection gracefully.
const (
	Answered    Outcome = "answered"
	Refused     Outcome = "refused"
	TimedOut    Outcome = "timeout"
	Unreachable Outcome = "unreachable"
	Reset       Outcome = "reset"
	Closed      Outcome = "closed"
	Broken      Outcome = "broken"
)

// Reply is the result of one request.
type Reply struct {
	Outcome Outcome
	// Backend is the name that the server reported, Port the port that received the request, Source the address that the server saw.
	Backend string
	Port    uint16
	Source  netip.AddrPort
	// Own is the address that the client sent from. The source was preserved if Source.Addr() equals it.
	Own     netip.Addr
	Latency time.Duration
	// Err is the cause when Outcome is not Answered.
	Err error
}

// Preserved reports whether the server saw the client's own address.
func (r Reply) Preserved() bool { return r.Source.Addr() == r.Own }

func (r Reply) String() string {
	if r.Outcome != Answered {
		return string(r.Outcome)
	}
	return fmt.Sprintf("%s:%d (saw %s)", r.Backend, r.Port, r.Source)
}

// Ask sends one request on its own connection (or socket, and so source port) and waits at most until ctx ends.
func (h *Host) Ask(ctx context.Context, proto Protocol, to netip.AddrPort) Reply {
	start := time.Now()
	f, err := h.Open(ctx, proto, to)
	if err != nil {
		return reply("", netip.Addr{}, err, time.Since(start))
	}
	defer f.Close()
	line, err := f.exchange(ctx)
	return reply(line, f.own, err, time.Since(start))
}

// Flow is a connection (TCP) or a fixed source port (UDP, SCTP) that carries several requests.
type Flow struct {
	conn  net.Conn // nil for SCTP
	lines *bufio.Reader
	sctp  *sctpFlow
	own   netip.Addr
}

// Open connects. For UDP and SCTP it sends nothing yet.
func (h *Host) Open(ctx context.Context, proto Protocol, to netip.AddrPort) (*Flow, error) {
	if proto == SCTP {
		return &Flow{sctp: h.sctpFlow(to)}, nil
	}
	conn, err := h.Dial(ctx, string(proto), to.String())
	if err != nil {
		return nil, err
	}
	own, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Flow{conn: conn, lines: bufio.NewReader(conn), own: own.Addr()}, nil
}

// Ask sends one line or datagram over the flow and waits for the answer.
func (f *Flow) Ask(ctx context.Context) Reply {
	start := time.Now()
	line, err := f.exchange(ctx)
	return reply(line, f.own, err, time.Since(start))
}

// Close ends the flow.
func (f *Flow) Close() {
	if f.conn != nil {
		_ = f.conn.Close()
	}
}

func (f *Flow) exchange(ctx context.Context) (line string, err error) {
	if f.sctp != nil {
		line, f.own, err = f.sctp.ask(ctx)
		return line, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience.Of(5 * time.Second))
	}
	if err := f.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := f.conn.Write([]byte("who\n")); err != nil && !errors.Is(err, unix.EPERM) {
		return "", err
	}
	// EPERM: a drop or reject in the output hook of the own host discarded the packet. The receive distinguishes the two: reject queues an error.
	return f.lines.ReadString('\n')
}

// asked counts the requests of this process.
var asked atomic.Int64

// Requests returns how many requests this process has sent from hosts of its labs, answered or not.
func Requests() int64 { return asked.Load() }

func reply(line string, own netip.Addr, err error, took time.Duration) Reply {
	asked.Add(1)
	r := Reply{Outcome: outcome(err), Own: own, Latency: took, Err: err}
	if err != nil {
		return r
	}
	fields := strings.Fields(line)
	if len(fields) == 3 {
		source, err1 := netip.ParseAddrPort(fields[1])
		local, err2 := netip.ParseAddrPort(fields[2])
		if err = errors.Join(err1, err2); err == nil {
			r.Backend, r.Source, r.Port = fields[0], source, local.Port()
			return r
		}
	}
	r.Outcome, r.Err = Broken, fmt.Errorf("parse answer %q", line)
	return r
}

// outcome classifies an error of connecting, sending or receiving.
func outcome(err error) Outcome {
	var timeout net.Error
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, errAborted):
		return Refused
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return Unreachable
	case errors.Is(err, io.EOF):
		return Closed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	}
	return Broken
}
