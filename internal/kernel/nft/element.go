package nft

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Finder looks one element up, without a dump. It is no part of Kernel, because no data plane needs it: it is for explaining
// what the kernel would do with a packet.
type Finder interface {
	// Element finds the element of a key; in a set of intervals it is the one that begins there. A missing element, set or
	// table is not found.
	Element(ctx context.Context, s SetRef, key []byte) (e Element, found bool, err error)
}

var (
	_ Finder = (*Conn)(nil)
	_ Finder = (*Fake)(nil)
)

// Element implements Finder.
func (c *Conn) Element(ctx context.Context, s SetRef, key []byte) (e Element, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return Element{}, false, err
	}
	body, list := openNest(dumpRequest(s.Table.Family, s.Table.Name, s.Name), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	body = appendElement(body, &Element{Key: key})
	closeNest(body, list)
	d := elementDecoder{chains: map[string]string{}}
	err = c.request(unix.NFT_MSG_GETSETELEM, 0, body, func(m nlmsg) error {
		if !m.isNft(unix.NFT_MSG_NEWSETELEM) {
			return nil
		}
		return d.list(m.attrs(), func(x *Element) error {
			e, found = x.clone(), true
			return nil
		})
	})
	if isAbsent(err) {
		return Element{}, false, nil
	}
	if err != nil {
		return Element{}, false, fmt.Errorf("look up an element of set %s: %w", s, err)
	}
	return e, found, nil
}

// clone copies what lies in the message that it came in.
func (e *Element) clone() Element {
	c := *e
	c.Key, c.KeyEnd, c.Data, c.UserData = bytes.Clone(e.Key), bytes.Clone(e.KeyEnd), bytes.Clone(e.Data), bytes.Clone(e.UserData)
	return c
}

// Element implements Finder.
func (f *Fake) Element(ctx context.Context, s SetRef, key []byte) (Element, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if set := f.set(s); set != nil {
		for _, e := range set.elems {
			if bytes.Equal(e.Key, key) && e.Flags&ElementIntervalEnd == 0 {
				return e.clone(), true, ctx.Err()
			}
		}
	}
	return Element{}, false, ctx.Err()
}
