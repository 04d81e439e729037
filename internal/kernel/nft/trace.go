package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// TraceSpec selects the packets to trace: those that begin a connection.
type TraceSpec struct {
	Table    string // the name of the temporary table
	From     netip.Addr
	To       netip.AddrPort
	Protocol uint8 // IPPROTO_*
}

// TraceEvent is one step of a traced packet: a rule with a verdict, the end of a chain, or the policy of a base chain.
type TraceEvent struct {
	Packet  uint32 // identifies the packet
	Chain   ChainRef
	Rule    uint64  // the rule's handle; 0: none
	Verdict Verdict // of the rule or the policy; 0: the next rule follows, or a verdict without a name here
	Policy  bool    // the packet reached the end of a base chain, and Verdict is its policy
	Dst     netip.AddrPort
	Lost    bool // not an event: the receive buffer overflowed and some events are lost
}

const (
	// tracePriority is before all other programs' rules, including conntrack and raw tables.
	tracePriority = -450
	traceBytes    = 1 << 20
	// tracedPerSecond bounds the cost of a flood of connections.
	tracedPerSecond = 5
)

// Trace makes a table with one rule per way into this host, which marks the packets of s. It calls emit with the kernel's trace
// events of these packets, not of packets that other programs mark, until emit returns true or ctx ends. The table is owned
// by this Conn's socket: it disappears with the process at the latest, if the kernel supports that (5.12). Use a separate Conn.
func (c *Conn) Trace(ctx context.Context, s TraceSpec, emit func(TraceEvent) (done bool)) error {
	events, err := c.cmd.Dial(netlink.Options{ReceiveBuffer: traceBytes})
	if err != nil {
		return fmt.Errorf("trace packets: %w", err)
	}
	defer func() { _ = events.Close() }()
	if err := events.Join(unix.NFNLGRP_NFTRACE); err != nil {
		return fmt.Errorf("trace packets: %w", err)
	}
	table := s.table()
	err = c.begin(ctx, &s, TableOwner)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		err = c.begin(ctx, &s, 0)
	}
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	err = receiveTraces(ctx, events, onlyMarked(table, emit))
	var b Batch
	b.DelTable(table)
	_, gone := c.Commit(context.WithoutCancel(ctx), &b)
	return errors.Join(err, gone)
}

// onlyMarked filters the events of packets that this table marked: the kernel sends every listener the events of all marked packets.
func onlyMarked(table TableRef, emit func(TraceEvent) bool) func(TraceEvent) bool {
	marked := map[uint32]bool{}
	return func(e TraceEvent) (done bool) {
		if e.Chain.Table == table && e.Rule != 0 { // the table's one rule; its chain also ends for packets that it does not mark
			marked[e.Packet] = true // a few a second
		}
		return (e.Lost || marked[e.Packet]) && emit(e)
	}
}

func (s *TraceSpec) table() TableRef {
	if s.To.Addr().Is4() {
		return TableRef{IPv4, s.Table}
	}
	return TableRef{IPv6, s.Table}
}

func (c *Conn) begin(ctx context.Context, s *TraceSpec, flags TableFlags) error {
	var b Batch
	table := s.table()
	b.newTable(table, flags)
	for _, h := range []struct {
		name string
		num  HookNum
	}{{"in", HookPrerouting}, {"out", HookOutput}} {
		chain := table.Chain(h.name)
		b.NewChain(ChainSpec{Ref: chain, Hook: &Hook{Type: "filter", Num: h.num, Priority: tracePriority, Policy: PolicyAccept}})
		b.NewRule(RuleSpec{Chain: chain, Exprs: s.rule(table.Family)})
	}
	_, err := c.Commit(ctx, &b)
	return err
}

// rule matches the first packet of a connection; for protocols other than TCP, every packet.
func (s *TraceSpec) rule(f Family) []Expr {
	port := binary.BigEndian.AppendUint16(nil, s.To.Port())
	out := []Expr{SourceAddr(f, Word(0)), Equal(Word(0), s.From.AsSlice()), DestAddr(f, Word(0)), Equal(Word(0), s.To.Addr().AsSlice()),
		MetaL4Proto(Word(0)), Equal(Word(0), []byte{s.Protocol}), DestPort(Word(0)), Equal(Word(0), port)}
	if s.Protocol == unix.IPPROTO_TCP {
		const flags, syn, ack = 13, 0x02, 0x10
		out = append(out, Payload(Word(0), unix.NFT_PAYLOAD_TRANSPORT_HEADER, flags, 1),
			Bitwise(Word(0), Word(0), []byte{syn | ack}, []byte{0}), Equal(Word(0), []byte{syn}))
	}
	return append(out, Limit(tracedPerSecond), Immediate(Word(0), []byte{1}), MetaSet(unix.NFT_META_NFTRACE, Word(0)))
}

// Limit ends the rule's evaluation for packets beyond perSecond.
func Limit(perSecond uint64) Expr {
	return newExpr("limit", func(b []byte) []byte {
		b = appendU64(b, unix.NFTA_LIMIT_RATE, perSecond)
		b = appendU64(b, unix.NFTA_LIMIT_UNIT, 1)
		b = appendU32(b, unix.NFTA_LIMIT_BURST, uint32(perSecond))
		b = appendU32(b, unix.NFTA_LIMIT_TYPE, unix.NFT_LIMIT_PKTS)
		return appendU32(b, unix.NFTA_LIMIT_FLAGS, 0)
	})
}

func receiveTraces(ctx context.Context, s *netlink.Socket, emit func(TraceEvent) bool) error {
	stop := context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 64<<10)
	for done := false; !done; {
		n, err := s.Receive(buf, true)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS): // the events that did arrive are valid
			done = emit(TraceEvent{Lost: true})
			continue
		case err != nil:
			return fmt.Errorf("read traces: %w", err)
		}
		_ = netlink.Each(buf[:min(n, len(buf))], func(msg netlink.Message) {
			m := nlmsg{msg}
			if !done && m.isNft(unix.NFT_MSG_TRACE) {
				done = emit(decodeTrace(m))
			}
		})
	}
	return nil
}

func decodeTrace(m nlmsg) TraceEvent {
	e := TraceEvent{Chain: ChainRef{Table: TableRef{Family: m.family()}}}
	var network, transport []byte
	netlink.EachAttr(m.attrs(), func(typ uint16, d []byte) {
		switch typ {
		case unix.NFTA_TRACE_ID:
			e.Packet = be32(d)
		case unix.NFTA_TRACE_TABLE:
			e.Chain.Table.Name = string(cstr(d))
		case unix.NFTA_TRACE_CHAIN:
			e.Chain.Name = string(cstr(d))
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Rule = be64(d)
		case unix.NFTA_TRACE_POLICY:
			e.Policy, e.Verdict.Code = true, verdictOf(int32(be32(d)))
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = d
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = d
		case unix.NFTA_TRACE_VERDICT:
			e.Verdict = traceVerdict(d)
		}
	})
	e.Dst = destination(network, transport)
	return e
}

func traceVerdict(d []byte) (v Verdict) {
	netlink.EachAttr(d, func(typ uint16, b []byte) {
		switch typ {
		case unix.NFTA_VERDICT_CODE:
			v.Code = verdictOf(int32(be32(b)))
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = string(cstr(b))
		}
	})
	return v
}

// destination decodes the headers that accompany the first event of each base chain.
func destination(network, transport []byte) netip.AddrPort {
	var a netip.Addr
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		a, _ = netip.AddrFromSlice(network[16:20])
	case len(network) >= 40 && network[0]>>4 == 6:
		a, _ = netip.AddrFromSlice(network[24:40])
	}
	if !a.IsValid() || len(transport) < 4 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(transport[2:]))
}
