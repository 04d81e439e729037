package relay

import (
	"net/netip"
	"sync"
)

// uses counts the open TCP connections of each address that clients ask.
type uses struct {
	mu sync.Mutex
	of map[netip.Addr]int
}

func (u *uses) add(a netip.Addr, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[a] += n; u.of[a] == 0 {
		delete(u.of, a)
	}
}

// Used tells whether a client still has a TCP connection to this address.
func (r *Relay) Used(a netip.Addr) bool {
	r.uses.mu.Lock()
	defer r.uses.mu.Unlock()
	return r.uses.of[a] > 0
}
