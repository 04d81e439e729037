package nftables

import (
	"context"
	"encoding/binary"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// contents reads the elements of every owned set except the maps of clients: packets
// write those, so their elements are not objects.
func (l *loader) contents(ctx context.Context) error {
	c := contents{loader: l}
	for _, def := range ownSets() {
		for _, part := range def.parts() {
			if !l.sets[part] {
				continue
			}
			c.begin(def, part)
			if err := l.d.seen.Tolerate(l.k.Elements(ctx, tableRef(l.f).Set(part), c.element)); err != nil {
				return err
			}
			c.end()
		}
	}
	return nil
}

// contents reads one set after another.
type contents struct {
	*loader
	def    *setDef
	part   string // the set of def that is being read
	buf    []byte
	bounds []bound             // of a set of ranges
	ranges map[string][]string // of guarded Frontends
	pool   poolReader
	hashed poolReader        // the consistent hash tables in the same set
	live   map[string][]byte // endpoints of Frontends with affinity
}

func (c *contents) begin(def *setDef, part string) {
	c.def, c.part, c.bounds, c.ranges, c.live = def, part, nil, nil, nil
	switch def.shape {
	case shapePool:
		c.pool.begin(def, c.f)
		c.hashed.begin(def, c.f)
	case shapeAllowed:
		c.ranges = map[string][]string{}
	case shapeLive:
		c.live = map[string][]byte{}
	}
}

// element handles one element. An element that the agent would not have written is a stray.
func (c *contents) element(e *nft.Element) error {
	if !c.known(e) {
		value := present
		if len(e.Data) > 0 {
			value = string(e.Data)
		}
		c.put(kindStray, strayID(c.part, e), value)
	}
	return nil
}

// known handles an element and reports whether the agent could have written it.
func (c *contents) known(e *nft.Element) bool {
	if e.Flags&nft.ElementCatchall != 0 || e.Timeout != 0 {
		return false
	}
	switch c.def.shape {
	case shapeMember, shapeVerdict:
		return c.single(e)
	case shapePool:
		return c.slot(e)
	case shapeRanges:
		c.bounds = append(c.bounds, bound{string(e.Key), e.Flags&nft.ElementIntervalEnd != 0})
		return true
	case shapeAllowed:
		return c.allowed(e)
	case shapeLive:
		return c.endpoint(e)
	}
	return false
}

// id reads the ID at the start of a key, or of both ends of a range, into c.buf. It
// returns false if the key does not have the format of the set's ident.
func (c *contents) id(e *nft.Element) bool {
	n := keyLen(c.def.ident, c.f)
	end := e.KeyEnd
	if len(end) == 0 {
		end = e.Key
	}
	if len(e.Key) < n || len(end) < n {
		return false
	}
	var ok bool
	c.buf, ok = appendIDOf(c.buf[:0], c.def.ident, e.Key[:n], end[:n])
	return ok
}

func (c *contents) single(e *nft.Element) bool {
	if !c.id(e) {
		return false
	}
	value, id := present, string(c.buf)
	if c.def.shape == shapeVerdict {
		value = valueOf(e.Verdict)
	}
	c.put(c.def.kind, id, value)
	return true
}

func (c *contents) slot(e *nft.Element) bool {
	if !c.id(e) || len(e.Data) != (c.pool.width+3)&^3 {
		return false
	}
	n := binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])
	pool := &c.pool
	if n >= hashBase {
		n, pool = n-hashBase, &c.hashed
	}
	if n >= maxSlots || hole(string(e.Data[:c.pool.width])) || c.def.split && shardNames[shardOf(c.buf)] != c.part {
		return false
	}
	pool.add(c.buf, int(n), e.Data)
	return true
}

func (c *contents) allowed(e *nft.Element) bool {
	n := keyLen(c.def.ident, c.f)
	if !c.id(e) || len(e.KeyEnd) != len(e.Key) {
		return false
	}
	id := string(c.buf)
	c.ranges[id] = append(c.ranges[id], string(e.Key[n:])+string(e.KeyEnd[n:]))
	return true
}

// endpoint reads one endpoint of a Frontend with affinity.
func (c *contents) endpoint(e *nft.Element) bool {
	n := addrLen(c.f) + 4
	if len(e.Key) != n+keyLen(c.def.ident, c.f) || len(e.KeyEnd) > 0 {
		return false
	}
	var ok bool
	if c.buf, ok = appendIDOf(c.buf[:0], c.def.ident, e.Key[n:], e.Key[n:]); !ok {
		return false
	}
	c.live[string(c.buf)] = append(c.live[string(c.buf)], e.Key[:n-2]...)
	return true
}

// end emits the objects that are complete only after the whole set has been read.
func (c *contents) end() {
	switch c.def.shape {
	case shapePool:
		c.pool.end(func(id, value string) { c.put(c.def.kind, id, value) })
		c.hashed.end(func(id, value string) { c.put(hashedKind(c.def.kind), id, value) })
	case shapeLive:
		for id, list := range c.live {
			c.put(c.def.kind, id, string(list))
		}
	case shapeAllowed:
		for id, list := range c.ranges {
			c.put(c.def.kind, id, ranged(list))
		}
	case shapeRanges:
		if v := joinBounds(c.bounds, addrLen(c.f)); v != "" {
			c.put(c.def.kind, "", v)
		}
	}
}
