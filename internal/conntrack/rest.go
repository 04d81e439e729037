package conntrack

import "time"

// maxRest is the longest pause after a pass.
const maxRest = time.Second

// rest notes a pass and the pause that it asks for. Who was quiet has that time to his
// credit, up to maxRest: of endpoints that go one after the other, say one of each
// family, the second does not wait. The Cleaner begins without any.
func (c *Cleaner) rest(begun time.Time, took time.Duration) {
	if c.p.Rest < 0 {
		return
	}
	if c.rested.IsZero() {
		c.rested = begun.Add(maxRest)
	}
	if c.rested.Before(begun) {
		c.rested = begun
	}
	c.rested = c.rested.Add(took + min(time.Duration(c.p.Rest)*took, maxRest))
	c.notBefore = c.rested.Add(-maxRest)
}
