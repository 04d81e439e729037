package delta

// Comparison finds out, part by part, what differs from what we believe. It leaves the tracker as it is. Between two parts
// the tracker may be used, but for ReplaceActual, CommitAnew and another Comparison: they spoil this one.
type Comparison[K comparable, O comparable] struct {
	t     *Tracker[K, O]
	look  uint16
	shape uint64 // of the tracker, as it began
	met   int    // keys that we know
	drift []Drift[K]
}

// Compare begins a Comparison.
func (t *Tracker[K, O]) Compare() *Comparison[K, O] {
	t.look++
	return &Comparison[K, O]{t: t, look: t.look, shape: t.shape}
}

// Spoiled reports whether the tracker was used in a way that makes the result worthless.
func (c *Comparison[K, O]) Spoiled() bool { return c.look != c.t.look }

// Found takes what is there of one key.
func (c *Comparison[K, O]) Found(k K, v string) {
	believed := ""
	if e, known := c.t.entries[k]; known {
		if e.look != c.look {
			c.met++
		}
		e.look, believed = c.look, e.have
	}
	if believed != v && !c.same(k, believed, v) {
		c.drift = append(c.drift, Drift[K]{Key: k, Believed: believed, Found: v})
	}
}

func (c *Comparison[K, O]) same(k K, believed, found string) bool {
	if width := c.t.p.Width(k); width > 0 || c.t.p.Same == nil {
		return samePool(believed, found, width)
	}
	return c.t.p.Same(believed, found)
}

// End returns the keys whose actual value differs from what we believe, once everything that is there has been taken. It
// walks through all keys, unless each was met.
func (c *Comparison[K, O]) End() []Drift[K] {
	if c.met < c.t.Len() || c.shape != c.t.shape {
		for k, e := range c.t.entries {
			if e.look != c.look && e.have != "" {
				c.drift = append(c.drift, Drift[K]{Key: k, Believed: e.have})
			}
		}
	}
	return c.drift
}
