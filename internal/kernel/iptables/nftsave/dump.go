package nftsave

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// errInterrupted: another program wrote during the dump, so that the listed objects may be of
// two states.
var errInterrupted = errors.New("interrupted by concurrent writes of another program")

// tries bounds the retries of a dump that was interrupted. The dump of a chain
// takes microseconds.
const tries = 100

// dumper sends requests over one socket. It must be used by one goroutine at a time.
type dumper struct {
	conn    *netlink.Conn
	request []byte
	rule    rule
	settled uint32 // a generation that is completely applied (settle)
}

// question is one request to nf_tables.
type question struct {
	kind, flags  uint16
	family       xt.Family // 0: unspecified
	table, chain string
}

// generic is the length of struct nfgenmsg.
const generic = 4

func body(m netlink.Message) []byte { return m.Body[min(generic, len(m.Body)):] }

func (d *dumper) ask(ctx context.Context, q question, take func(netlink.Message) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	seq := d.conn.Reserve(1)
	b := append(d.request[:0], 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_NFTABLES<<8|q.kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|q.flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0, protocolFamily(q.family), 0, 0, 0)
	if q.table != "" {
		b = appendName(b, unix.NFTA_RULE_TABLE, q.table)
		b = appendName(b, unix.NFTA_RULE_CHAIN, q.chain)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	d.request = b
	return d.conn.Ask(netlink.Question{First: seq, Last: seq, Data: [][]byte{b}}, take)
}

func protocolFamily(f xt.Family) byte {
	switch f {
	case xt.IPv4:
		return unix.NFPROTO_IPV4
	case xt.IPv6:
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_UNSPEC
}

// dump calls row with the attributes of each listed object. It reads to the end
// in every case, because the socket would reject another dump before that. All objects of a list must be
// of the settled generation, whose low 16 bits are in nfgenmsg; otherwise dump
// returns errInterrupted.
func (d *dumper) dump(ctx context.Context, q question, row func(attributes []byte)) error {
	var failed error
	var generation uint16
	rows, interrupted := 0, false
	err := d.ask(ctx, q, func(m netlink.Message) bool {
		interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case m.Type == unix.NLMSG_DONE || m.Type == unix.NLMSG_ERROR:
			if e := m.Errno(); e != 0 {
				failed = e
			}
			return true
		case m.Type == unix.NFNL_SUBSYS_NFTABLES<<8|(q.kind-1) && len(m.Body) >= generic: // NEW is GET - 1
			its := binary.BigEndian.Uint16(m.Body[2:])
			interrupted = interrupted || rows > 0 && its != generation
			generation = its
			rows++
			row(body(m))
		}
		return false
	})
	switch {
	case err != nil:
		return err
	case rows > 0 && generation != uint16(d.settled):
		if err := d.settle(ctx); err != nil {
			return err
		}
		return errInterrupted
	case interrupted:
		return errInterrupted
	}
	return failed
}

// chain appends the lines of a chain. A deleted chain has none.
func (d *dumper) chain(ctx context.Context, q *Request, c *chain, dst []byte) ([]byte, error) {
	begin := len(dst)
	for range tries {
		dst = dst[:begin]
		if !c.builtIn {
			dst = append(append(append(dst, ':'), c.name...), " - [0:0]\n"...)
		}
		known := true
		err := d.dump(ctx, question{unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, q.Family, q.Table, c.name}, func(attributes []byte) {
			var ok bool
			dst, ok = d.line(q, c, attributes, dst)
			known = known && ok
		})
		switch {
		case errors.Is(err, errInterrupted):
		case errors.Is(err, unix.ENOENT):
			return dst[:begin], nil
		case err != nil:
			return dst, fmt.Errorf("chain %s: %w", c.name, err)
		case !known:
			return dst, fmt.Errorf("chain %s: %w", c.name, ErrUnknown)
		default:
			return dst, nil
		}
	}
	return dst, fmt.Errorf("chain %s: %w", c.name, errInterrupted)
}

// line appends a rule, unless it is in a built-in chain and jumps to no owned chain. It returns
// false for a rule that it cannot decode.
func (d *dumper) line(q *Request, c *chain, attributes, dst []byte) ([]byte, bool) {
	begin := len(dst)
	var expressions []byte
	plain := true
	a := netlink.Attrs{Rest: attributes}
	for a.Next() {
		switch a.Type {
		case unix.NFTA_RULE_EXPRESSIONS:
			expressions = a.Data
		case unix.NFTA_RULE_USERDATA: // nft's comment, or data of other releases of iptables
			plain = false
		}
	}
	if c.builtIn && !a.Bad && !leadsToOne(expressions, q.Ours) {
		return dst, true
	}
	r := &d.rule
	r.reset(q.Family)
	if a.Bad || !plain || !r.read(expressions) {
		return dst, false
	}
	dst, ok := r.appendTo(append(append(dst, "-A "...), c.name...))
	if !ok {
		return dst[:begin], false
	}
	return append(dst, '\n'), true
}
