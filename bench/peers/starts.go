package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
)

// cold starts the subject on an unmodified node.
func (t *trial) cold(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, t.c.syncLimit)
	defer cancel()
	m := t.meter()
	if err := t.subject.start(); err != nil {
		return err
	}
	r := startRecord{}
	g, limited := errgroup.WithContext(limited)
	g.Go(func() (err error) { r.SyncedSeconds, err = t.subject.synced(limited); return err })
	g.Go(func() (err error) { r.ReachedSeconds, err = t.reached(limited); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	t.finish(ctx, m, &r)
	if err := t.add(record{Cold: &r}); err != nil {
		return err
	}
	return settle(ctx)
}

// reached waits until packets reach the canary and Services from the whole range. This verifies what the subject
// reports about itself.
func (t *trial) reached(ctx context.Context) (seconds float64, err error) {
	for _, to := range []netip.AddrPort{canaryAddr, netip.AddrPortFrom(serviceIP(0), servicePort),
		netip.AddrPortFrom(serviceIP(t.n/2), servicePort), netip.AddrPortFrom(serviceIP(t.n-1), servicePort)} {
		for reaches(ctx, t.node.client, to) != nil {
			if !pause(ctx, 10*time.Millisecond) {
				return 0, errNoSync
			}
		}
	}
	return time.Since(t.subject.started).Seconds(), nil
}

// restart stops the subject and starts it again with nothing changed, while a probe connects to the canary.
func (t *trial) restart(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, t.c.syncLimit)
	defer cancel()
	r := startRecord{}
	probing, stopProbe := context.WithCancel(limited)
	defer stopProbe()
	var g errgroup.Group
	g.Go(func() error { r.Probes, r.ProbesLost = t.probe(probing); return nil })
	t.subject.stop()
	m := t.meter()
	if err := t.subject.start(); err != nil {
		return err
	}
	synced, err := t.subject.synced(limited)
	stopProbe()
	if err := errors.Join(g.Wait(), err); err != nil {
		return err
	}
	r.SyncedSeconds = synced
	t.finish(ctx, m, &r)
	return t.add(record{Restart: &r})
}

func (t *trial) probe(ctx context.Context) (made, lost int) {
	for pause(ctx, 10*time.Millisecond) {
		if err := reaches(ctx, t.node.client, canaryAddr); err != nil && ctx.Err() == nil {
			lost++
		}
		made++
	}
	return made, lost
}

func (t *trial) finish(ctx context.Context, m meter, r *startRecord) {
	r.CPU, r.OtherBusy = m.read()
	r.PeakMiB = t.subject.group.memoryPeakMiB()
	r.Objects, r.Reads = t.own(ctx, operations), t.own(ctx, kernelReads)
}

// own reads a metric that only Fairlead has.
func (t *trial) own(ctx context.Context, name string) *float64 {
	p, err := scrape(ctx, t.node.host)
	if err != nil {
		return nil
	}
	v, err := p.value(name)
	if err != nil {
		return nil
	}
	return &v
}
