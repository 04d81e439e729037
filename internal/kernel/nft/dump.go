package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// dumpRequest returns the body of a dump request: family, and up to two names in attributes 1 and 2 (table, then set or chain).
func dumpRequest(f Family, names ...string) []byte {
	b := []byte{byte(f), 0, 0, 0}
	for i, n := range names {
		b = appendString(b, uint16(i+1), n)
	}
	return b
}

// dump sends a dump request and calls f with its rows, messages of type get - 1 (NEW is GET - 1). It reads to the
// end even when f fails, because the socket would reject another dump with EBUSY. It returns ErrInterrupted if the kernel reports
// that, or if the rows are of different generations: nfgenmsg.res_id carries the low 16 bits of the generation, also where the
// kernel sets no flag.
func (c *Conn) dump(ctx context.Context, get uint16, body []byte, f func(nlmsg) error) error {
	return c.run(&dumping{ctx: ctx, row: get - 1, f: f}, body)
}

func (c *Conn) run(d *dumping, body []byte) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if err := c.cmd.Ask(c.question(d.row+1, unix.NLM_F_DUMP, body), d.take); err != nil {
		return fmt.Errorf("read dump: %w", errors.Join(err, d.err))
	}
	if d.err == nil && d.interrupted {
		d.err = ErrInterrupted
	}
	return d.err
}

type dumping struct {
	ctx         context.Context
	row         uint16
	f           func(nlmsg) error
	gen         uint16 // the low 16 bits of the rows' generation
	known       bool   // gen is set
	interrupted bool
	err         error // the first one
}

func (d *dumping) take(msg netlink.Message) (done bool) {
	m := nlmsg{msg}
	d.interrupted = d.interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
	if d.err == nil {
		d.err = d.ctx.Err()
	}
	switch {
	case m.Type == unix.NLMSG_DONE || m.Type == unix.NLMSG_ERROR:
		if e := m.Errno(); e != 0 && d.err == nil {
			d.err = e
		}
		return true
	case m.isNft(d.row):
		gen := binary.BigEndian.Uint16(m.Body[2:])
		d.interrupted = d.interrupted || d.known && gen != d.gen
		d.gen, d.known = gen, true
		if d.err == nil {
			d.err = d.f(m)
		}
	}
	return false
}

// quietTries bounds the retries of a short dump that was interrupted: one takes less than a millisecond.
const quietTries = 16

// asked is a dump request.
type asked struct {
	get  uint16
	body []byte
	// short: the list is short, and no other read relies on the wait before it. So if its generation is one for which an
	// earlier dump has waited, no wait is needed.
	short bool
}

// settled returns the requested rows of a dump. They are complete: of the objects that existed before the dump, only those are
// missing that a commit deletes (netlink.Conn.Settle). It repeats the dump if it is interrupted. A dump that proceeds by position in
// a list of all tables' objects is interrupted by every commit.
func settled[T any](ctx context.Context, c *Conn, q asked, row func(nlmsg) (T, bool)) (out []T, err error) {
	for n := 0; n < quietTries && (n == 0 || errors.Is(err, ErrInterrupted)); n++ {
		if n > 0 || !q.short || c.inPlace == 0 {
			if err := c.await(); err != nil {
				return nil, err
			}
		}
		out = out[:0]
		err = c.run(&dumping{ctx: ctx, row: q.get - 1, gen: uint16(c.inPlace), known: true, f: func(m nlmsg) error {
			if r, wanted := row(m); wanted {
				out = append(out, r)
			}
			return nil
		}}, q.body)
	}
	return out, err
}

// await waits until the present generation is completely applied.
func (c *Conn) await() (err error) {
	if c.inPlace, err = c.present(); err != nil {
		return err
	}
	return c.settle()
}

// Tables implements Kernel.
func (c *Conn) Tables(ctx context.Context) ([]Table, error) {
	out, err := settled(ctx, c, asked{get: unix.NFT_MSG_GETTABLE}, func(m nlmsg) (Table, bool) {
		return decodeTable(m.family(), m.attrs()), true
	})
	if err != nil {
		return nil, fmt.Errorf("dump tables: %w", err)
	}
	return out, nil
}

// Sets implements Kernel.
func (c *Conn) Sets(ctx context.Context, t TableRef) ([]Set, error) {
	var out []Set
	err := c.dump(ctx, unix.NFT_MSG_GETSET, dumpRequest(t.Family, t.Name), func(m nlmsg) error {
		if s := decodeSet(m.family(), m.attrs()); s.Ref.Table == t {
			out = append(out, s)
		}
		return nil
	})
	if err != nil && !isAbsent(err) {
		return out, fmt.Errorf("dump sets of table %s: %w", t, err)
	}
	return out, nil
}

// Chains implements Kernel. Kernels differ in whether they filter by table, so the rows are filtered here.
func (c *Conn) Chains(ctx context.Context, t TableRef) ([]Chain, error) {
	out, err := settled(ctx, c, asked{get: unix.NFT_MSG_GETCHAIN, body: dumpRequest(t.Family, t.Name)}, func(m nlmsg) (Chain, bool) {
		r := decodeChain(m.family(), m.attrs())
		return r, r.Ref.Table == t
	})
	if err != nil && !isAbsent(err) {
		return nil, fmt.Errorf("dump chains of table %s: %w", t, err)
	}
	return out, nil
}

// Rules implements Kernel.
func (c *Conn) Rules(ctx context.Context, t TableRef) ([]Rule, error) {
	var out []Rule
	err := c.dump(ctx, unix.NFT_MSG_GETRULE, dumpRequest(t.Family, t.Name), func(m nlmsg) error {
		if r := decodeRule(m.family(), m.attrs()); r.Chain.Table == t {
			out = append(out, r)
		}
		return nil
	})
	if err != nil && !isAbsent(err) {
		return out, fmt.Errorf("dump rules of table %s: %w", t, err)
	}
	return out, nil
}

// Elements implements Kernel.
func (c *Conn) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	d := elementDecoder{chains: map[string]string{}}
	err := c.dump(ctx, unix.NFT_MSG_GETSETELEM, dumpRequest(s.Table.Family, s.Table.Name, s.Name),
		func(m nlmsg) error { return d.list(m.attrs(), emit) })
	if err != nil {
		return fmt.Errorf("dump elements of set %s: %w", s, err)
	}
	return nil
}

func isAbsent(err error) bool { return errors.Is(err, unix.ENOENT) }
