package app

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/miekg/dns"
)

// asked are the questions to the other servers of an agent; each gives an error unless it
// is answered.
func asked() map[string]func() error {
	question := new(dns.Msg).SetQuestion("shop.demo.svc.cluster.local.", dns.TypeA)
	lookup := func(network string) error {
		c := dns.Client{Net: network, Timeout: patience}
		_, _, err := c.Exchange(question.Copy(), "127.0.0.54:5353")
		return err
	}
	get := func(at string) error {
		c, err := net.DialTimeout("tcp", at, patience)
		if err != nil {
			return err
		}
		defer c.Close() //nolint:errcheck // the answer is what counts
		_, err = say(c) // "hello" is no request, and that is the answer
		return err
	}
	return map[string]func() error{
		"healthz":      func() error { return get("127.0.0.1:10256") },
		"metrics":      func() error { return get("127.0.0.1:10249") },
		"DNS over UDP": func() error { return lookup("udp") },
		"DNS over TCP": func() error { return lookup("tcp") },
	}
}

// TestHandoverOfServers: health, metrics and DNS refuse nobody while one agent goes on in
// the place of another, and all are answered by the last one. Who is between the two waits.
func TestHandoverOfServers(t *testing.T) {
	args := append(userspaceArgs(t), "--dns-address", "127.0.0.54:5353")
	agents := []*process{begin(t, args...)}
	questions := asked()
	for name, ask := range questions {
		eventually(t, name+" answers", ask)
	}
	var quit atomic.Bool
	var all sync.WaitGroup
	done := map[string]*atomic.Int64{}
	for name, ask := range questions {
		n := &atomic.Int64{}
		done[name] = n
		all.Go(func() {
			for !quit.Load() {
				// A question may take so long here that its agent does not wait for it:
				// that is no refusal.
				if err := ask(); errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s, question %d: %v", name, n.Load(), err)
					return
				}
				n.Add(1)
			}
		})
	}
	defer all.Wait()
	defer quit.Store(true)
	for range 3 {
		next := begin(t, args...)
		next.says("took over")
		agents = append(agents, next)
		for name, n := range done {
			enough := n.Load() + 20
			eventually(t, name+" is asked more", func() error {
				if got := n.Load(); got < enough {
					return fmt.Errorf("%d of %d", got, enough)
				}
				return nil
			})
		}
	}
	for name, ask := range questions {
		eventually(t, name+" answers at the end", ask)
	}
	for _, p := range agents[:3] {
		if c := p.code(); c != 0 {
			t.Errorf("an agent that has handed over ends with status %d", c)
		}
	}
}
