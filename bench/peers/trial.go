package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// trial is one subject at one size.
type trial struct {
	c       *control
	sink    *sink
	n       int
	node    *node
	subject *subject
	canary  *canary
}

// measure runs all phases. A phase in which the subject fails is recorded as failed, and the run continues.
func measure(ctx context.Context, c *control, sink *sink, name string, n int) error {
	fmt.Printf("--- %s, %d Services with %d endpoints\n", name, n, c.endpoints)
	node, err := newNode(ctx, c)
	if err != nil {
		return err
	}
	defer node.close()
	t := &trial{c: c, sink: sink, n: n, node: node, canary: &canary{c: c, node: node}}
	if t.subject, err = newSubject(c, node, name, n); err != nil {
		return err
	}
	defer t.subject.group.remove()
	defer t.subject.stop()
	if err := t.phases(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return t.add(record{Failed: err.Error()})
	}
	return nil
}

func (t *trial) brief() bool { return t.n > t.c.briefAbove }

func (t *trial) phases(ctx context.Context) error {
	bare, err := t.connect(map[string]netip.AddrPort{"bare": netip.AddrPortFrom(endpointIP(0, t.c.endpoints, 0), acceptPort)})
	if err != nil {
		return err
	}
	all := []func() error{
		func() error { return t.canary.put(ctx, 0) },
		func() error { return t.cold(ctx) },
		func() error { return t.singles(ctx) },
		func() error { return t.connects(bare) },
	}
	if !t.brief() {
		all = append(all, func() error { return t.churn(ctx) }, func() error { return t.restart(ctx) })
	}
	return steps(all...)
}

func (t *trial) add(r record) error {
	r.Subject, r.N, r.E = t.subject.name, t.n, t.c.endpoints
	return t.sink.add(r)
}

// connects times new connections. The order of Services is that of their creation; first and last show whether the order
// matters.
func (t *trial) connects(bare connectRecord) error {
	last := t.n - 1
	all, err := t.connect(map[string]netip.AddrPort{
		"direct":   netip.AddrPortFrom(endpointIP(0, t.c.endpoints, 0), acceptPort),
		"first":    netip.AddrPortFrom(serviceIP(0), servicePort),
		"last":     netip.AddrPortFrom(serviceIP(last), servicePort),
		"nodeport": netip.AddrPortFrom(t.node.host.Addrs.V4, nodePort(lastNodePort(t.n))),
	})
	if err != nil || len(all) == 0 {
		return err
	}
	for name, r := range bare {
		all[name] = r
	}
	return t.add(record{Connect: &all})
}

func (t *trial) connect(targets map[string]netip.AddrPort) (connectRecord, error) {
	return connectAll(t.node.client, targets, t.c.options.connect)
}

// meter measures the CPU time of a phase.
type meter struct {
	t                *trial
	subject, control cpuTime
	machine          float64
}

func (t *trial) meter() meter {
	return meter{t: t, subject: t.subject.group.used(), control: t.c.group.used(), machine: machineBusy()}
}

// read returns the subject's CPU time, and the time of everything that is neither subject nor control plane: the probes,
// the packets, and other work on the machine, which makes wall times longer.
func (m meter) read() (subject cpuTime, other float64) {
	subject = m.t.subject.group.used().since(m.subject)
	control := m.t.c.group.used().since(m.control)
	return subject, machineBusy() - m.machine - subject.Total - control.Total
}

// settle waits until a subject's work after a sync is done: kube-proxy removes stale chains a second later.
func settle(ctx context.Context) error {
	if !pause(ctx, 4*time.Second) {
		return ctx.Err()
	}
	return nil
}
