package nft

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Finder looks up single objects by their names and keys, without a dump of others. It is not a part of Kernel, because
// writers do not need it: it is for explaining the kernel's handling of a packet. A missing object is not found, also if
// its set or table is missing.
type Finder interface {
	// Element returns the element of a key; in a set of intervals the one that begins there or, with ElementIntervalEnd, ends.
	Element(ctx context.Context, s SetRef, want *Element) (e Element, found bool, err error)
	Table(ctx context.Context, t TableRef) (row Table, found bool, err error)
	Set(ctx context.Context, s SetRef) (row Set, found bool, err error)
	Chain(ctx context.Context, c ChainRef) (row Chain, found bool, err error)
	// Elements is the method of Kernel.
	Elements(ctx context.Context, s SetRef, emit func(*Element) error) error
	// ChainRules returns the rules of one chain, in their order.
	ChainRules(ctx context.Context, c ChainRef) ([]Rule, error)
}

var (
	_ Finder = (*Conn)(nil)
	_ Finder = (*Fake)(nil)
)

// Element implements Finder.
func (c *Conn) Element(ctx context.Context, s SetRef, want *Element) (e Element, found bool, err error) {
	body, list := openNest(dumpRequest(s.Table.Family, s.Table.Name, s.Name), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	body = appendElement(body, &Element{Key: want.Key, KeyEnd: want.KeyEnd, Flags: want.Flags})
	closeNest(body, list)
	d := elementDecoder{chains: map[string]string{}}
	found, err = c.find(ctx, unix.NFT_MSG_GETSETELEM, body, func(m nlmsg) error {
		return d.list(m.attrs(), func(x *Element) error {
			e = x.clone()
			return nil
		})
	})
	if err != nil {
		return Element{}, false, fmt.Errorf("look up an element of set %s: %w", s, err)
	}
	return e, found, nil
}

// Table implements Finder.
func (c *Conn) Table(ctx context.Context, t TableRef) (row Table, found bool, err error) {
	found, err = c.find(ctx, unix.NFT_MSG_GETTABLE, dumpRequest(t.Family, t.Name), func(m nlmsg) error {
		row = decodeTable(m.family(), m.attrs())
		return nil
	})
	if err != nil {
		return row, false, fmt.Errorf("look up table %s: %w", t, err)
	}
	return row, found, nil
}

// Set implements Finder.
func (c *Conn) Set(ctx context.Context, s SetRef) (row Set, found bool, err error) {
	found, err = c.find(ctx, unix.NFT_MSG_GETSET, dumpRequest(s.Table.Family, s.Table.Name, s.Name), func(m nlmsg) error {
		row = decodeSet(m.family(), m.attrs())
		return nil
	})
	if err != nil {
		return row, false, fmt.Errorf("look up set %s: %w", s, err)
	}
	return row, found, nil
}

// Chain implements Finder.
func (c *Conn) Chain(ctx context.Context, ref ChainRef) (row Chain, found bool, err error) {
	body := appendString(dumpRequest(ref.Table.Family, ref.Table.Name), unix.NFTA_CHAIN_NAME, ref.Name)
	found, err = c.find(ctx, unix.NFT_MSG_GETCHAIN, body, func(m nlmsg) error {
		row = decodeChain(m.family(), m.attrs())
		return nil
	})
	if err != nil {
		return row, false, fmt.Errorf("look up chain %s: %w", ref, err)
	}
	return row, found, nil
}

// ChainRules implements Finder: the kernel dumps only the rules of that chain.
func (c *Conn) ChainRules(ctx context.Context, ref ChainRef) ([]Rule, error) {
	q := asked{get: unix.NFT_MSG_GETRULE, body: dumpRequest(ref.Table.Family, ref.Table.Name, ref.Name), short: true}
	out, err := settled(ctx, c, q, func(m nlmsg) (Rule, bool) {
		r := decodeRule(m.family(), m.attrs())
		return r, r.Chain == ref
	})
	if err != nil && !isAbsent(err) {
		return nil, fmt.Errorf("read the rules of chain %s: %w", ref, err)
	}
	return out, nil
}

// find requests one object and calls f with it; a missing object is not found. Answers have type get - 1 (NEW is GET - 1).
func (c *Conn) find(ctx context.Context, get uint16, body []byte, f func(nlmsg) error) (found bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = c.request(get, 0, body, func(m nlmsg) error {
		if !m.isNft(get - 1) {
			return nil
		}
		found = true
		return f(m)
	})
	if isAbsent(err) {
		return false, nil
	}
	return found, err
}

// clone returns a copy whose slices do not point into the received message.
func (e *Element) clone() Element {
	c := *e
	c.Key, c.KeyEnd, c.Data, c.UserData = bytes.Clone(e.Key), bytes.Clone(e.KeyEnd), bytes.Clone(e.Data), bytes.Clone(e.UserData)
	return c
}
