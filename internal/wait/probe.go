package wait

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// connectTimeout is short on purpose: the kernel repeats a lost SYN after 1, 3, 7,
// 15 … s, so a new attempt each second finds a path that has just opened sooner
// than an old one does.
const connectTimeout = time.Second

// connect tries TCP on all addresses concurrently. It returns what is wrong with those
// that do not accept.
func connect(ctx context.Context, list []endpoint, port uint16) map[netip.Addr]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64) // descriptors in use at once
	wrong := map[netip.Addr]string{}
	for _, e := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			d := net.Dialer{Timeout: connectTimeout}
			conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(e.addr, port).String())
			if err == nil {
				_ = conn.Close()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			wrong[e.addr] = reason(err)
		})
	}
	wg.Wait()
	return wrong
}

func reason(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused: no process listens on this port yet"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "not answered: packets are dropped on the way (a network policy that is not in force yet, or a dead pod)"
	}
	return err.Error()
}

// lookup resolves a name as a program with Go's resolver does: by the search list of
// the pod's resolv.conf, at its first name server. It returns how many endpoints
// the addresses found may be.
func (n *nameServer) lookup(ctx context.Context, name string) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, n.server)
	}}
	list, err := r.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return 0
	}
	found := make([]endpoint, len(list))
	for i, a := range list {
		found[i].addr = a.Unmap()
	}
	return countPods(found)
}
