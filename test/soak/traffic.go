package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
)

// traffic counts the results of the requests.
type traffic struct {
	w    *world
	lab  *netlab.Lab
	late *starving
	mu   sync.Mutex
	kind map[string]*count // by kind of request
	lag  time.Duration     // the longest time between an endpoint's removal and the last request that it got
	bad  [2][]string       // the first few requests that were lost, and that were answered by the wrong endpoint
}

type count struct {
	answered, lost, stale, excused, slow int
	worst                                time.Duration
}

// question is one request to a steady Service.
type question struct {
	s    *service
	kind string
	from *netlab.Host
	to   netip.AddrPort
}

// draw selects a request that must be answered.
func (t *traffic) draw(r *rand.Rand) (question, error) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	s := t.w.all[r.IntN(steadyServices)]
	v6 := s.dual && r.IntN(2) == 0
	q := question{s: s, kind: "ClusterIP"}
	name := []string{"pod-a1", "pod-a5", "node-a", "client"}[r.IntN(4)]
	address := pickFamily(v6, vip6(s.index), vip4(s.index))
	port := uint16(80)
	switch way := s.index % 3; {
	case way == 1 && r.IntN(2) == 0:
		q.kind, name, port = "NodePort", []string{"client", "client2", "node-a"}[r.IntN(3)], uint16(30000+s.index)
		address = t.lab.Node().Addrs.V4.String()
		if v6 {
			address = t.lab.Node().Addrs.V6.String()
		}
	case way == 2 && r.IntN(2) == 0:
		q.kind, name = "LoadBalancer", []string{"client", "client2"}[r.IntN(2)]
		address = pickFamily(v6, lb6(s.index), lb4(s.index))
	}
	q.kind += " " + s.proto
	var err error
	q.from, err = t.lab.Host(name)
	q.to = netip.AddrPortFrom(netip.MustParseAddr(address), port)
	return q, err
}

func pickFamily(v6 bool, six, four string) string {
	if v6 {
		return six
	}
	return four
}

func proto(s *service) netlab.Protocol {
	if s.proto == "UDP" {
		return netlab.UDP
	}
	return netlab.TCP
}

// ask makes one new connection after the other until ctx ends.
func (t *traffic) ask(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 2))
	for ctx.Err() == nil {
		q, err := t.draw(r)
		if err != nil {
			return err
		}
		start := time.Now()
		once, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
		rep := q.from.Ask(once, proto(q.s), q.to)
		stop()
		t.note(q, start, rep)
		pause(ctx, 3*time.Millisecond)
	}
	return nil
}

// hold keeps one flow open and sends requests over it. TCP connections outlive the membership of their endpoint; here all
// pods keep running.
func (t *traffic) hold(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	for ctx.Err() == nil {
		q, err := t.draw(r)
		if err != nil {
			return err
		}
		if q.s.proto != "TCP" {
			continue
		}
		q.kind = "held TCP"
		t.holdOne(ctx, q, 200+r.IntN(400))
	}
	return nil
}

func (t *traffic) holdOne(ctx context.Context, q question, requests int) {
	once, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	f, err := q.from.Open(once, netlab.TCP, q.to)
	stop()
	if err != nil {
		t.note(q, time.Now(), netlab.Reply{Outcome: netlab.Broken, Err: err})
		return
	}
	defer f.Close()
	for i := 0; i < requests && ctx.Err() == nil; i++ {
		once, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
		rep := f.Ask(once)
		stop()
		t.note(q, time.Time{}, rep)
		if rep.Outcome != netlab.Answered {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// note counts one request; a start of zero means that any pod may answer.
func (t *traffic) note(q question, start time.Time, rep netlab.Reply) {
	t.w.mu.Lock()
	entitled, ago := true, time.Duration(0)
	if rep.Outcome == netlab.Answered && !start.IsZero() {
		entitled, ago = q.s.entitled(rep.Backend, start, t.late.grace)
	}
	inFlight := q.s.proto == "UDP" && q.s.leftSince("", start.Add(-t.late.grace(start.Add(-grace))))
	t.w.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.kind[q.kind]
	if c == nil {
		c = &count{}
		t.kind[q.kind] = c
	}
	switch {
	case rep.Outcome != netlab.Answered && inFlight:
		// The agent ended its flow while the answer was in flight, because the endpoint was removed. That is correct, and cannot be
		// distinguished from a loss.
		c.excused++
		return
	case rep.Outcome != netlab.Answered:
		c.lost++
		t.tell(0, "%s %s -> %s (s%04d): %s %v", q.kind, q.from.Name, q.to, q.s.index, rep.Outcome, rep.Err)
		return
	case !entitled:
		c.stale++
		t.tell(1, "%s %s -> %s (s%04d): answered by %s, which had left %s before", q.kind, q.from.Name, q.to, q.s.index, rep.Backend, ago)
	}
	t.lag = max(t.lag, ago)
	c.answered++
	if rep.Latency > slow {
		c.slow++
	}
	c.worst = max(c.worst, rep.Latency)
}

func (t *traffic) tell(sort int, format string, args ...any) {
	if len(t.bad[sort]) < 10 {
		t.bad[sort] = append(t.bad[sort], time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
