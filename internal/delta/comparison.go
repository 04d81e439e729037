package delta

// Comparison finds drift in parts: the keys whose value in the kernel differs from the tracker's actual state. It does not
// update the desired or the actual state. Between two parts the tracker may be used, except for ReplaceActual, CommitAnew
// and another Comparison, which spoil this one.
type Comparison[K comparable, O comparable] struct {
	t     *Tracker[K, O]
	look  uint16
	shape uint64 // of the tracker, at the start
	met   int    // visited keys that the tracker has
	drift []Drift[K]
}

// Compare starts a Comparison.
func (t *Tracker[K, O]) Compare() *Comparison[K, O] {
	t.look++
	return &Comparison[K, O]{t: t, look: t.look, shape: t.shape}
}

// Spoiled reports whether the tracker was used in a way that invalidates the result.
func (c *Comparison[K, O]) Spoiled() bool { return c.look != c.t.look }

// Found compares one key with the value that was read for it, which is not "".
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

// same reports whether a value that was read is equivalent to the assumed one.
func (c *Comparison[K, O]) same(k K, believed, found string) bool {
	if width := c.t.p.Width(k); width > 0 || c.t.p.Same == nil {
		return samePool(believed, found, width)
	}
	return c.t.p.Same(believed, found)
}

// End returns the drift. Found must have been called for every key that was read. End walks through all keys, unless each
// was visited.
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
