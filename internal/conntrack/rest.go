package conntrack

import "time"

// maxRest is the longest pause after a pass.
const maxRest = time.Second

// rest records a pass and the pause after it. Idle time is credited, up to maxRest: if
// two endpoints are removed one after the other, say one of each family, the second
// does not wait. The Cleaner begins without credit.
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
