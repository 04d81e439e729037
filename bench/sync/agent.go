package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// agent is the path from objects to the kernel, without the servers of an agent.
type agent struct {
	mail   *mailbox.Mailbox
	reads  func() uint64 // of the actual state of the kernel, so far
	conv   *convert.Converter
	turns  chan engine.Turn
	cancel context.CancelFunc
	done   chan error
}

func start(mode string) (*agent, error) {
	d, reads, err := open(mode)
	if err != nil {
		return nil, err
	}
	a := &agent{mail: mailbox.New(), reads: reads, conv: convert.New(),
		turns: make(chan engine.Turn, 4096), // more than any phase makes before it reads them
		done:  make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	caps, err := d.Probe(ctx)
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Params{Driver: d, ChunkOps: caps.ChunkOps, Families: caps.Families, Mailbox: a.mail, NodeName: "node0", Sources: []string{"bench"},
		View:   policy.ViewInputs{NodePortPrimary: true, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, MasqueradeBit: 14},
		OnTurn: func(t *engine.Turn) { a.turns <- summary(t) }})
	go func() { a.done <- e.Run(ctx) }()
	return a, nil
}

// summary returns a copy without references to the engine's state.
func summary(t *engine.Turn) engine.Turn {
	return engine.Turn{Started: t.Started, Done: t.Done, Phases: t.Phases, Err: t.Err, Full: t.Full,
		SliceEvents: t.SliceEvents, Operations: t.Operations, Batches: t.Batches, Pending: t.Pending, Drift: t.Drift}
}

// await returns the next sync, or fails after five minutes.
func (a *agent) await() (engine.Turn, error) {
	select {
	case t := <-a.turns:
		if t.Err != nil {
			return t, t.Err
		}
		return t, nil
	case <-time.After(5 * time.Minute):
		return engine.Turn{}, fmt.Errorf("no sync within five minutes")
	}
}

func (a *agent) stop() error {
	a.cancel()
	err := <-a.done
	return err
}

// load puts the whole cluster and waits until it is in the kernel.
func (a *agent) load(c *cluster) (engine.Turn, error) {
	a.mail.Put(model.Event{Host: &model.HostAddrs{Addrs: []model.HostAddr{{Prefix: netip.MustParsePrefix("192.168.50.2/24"), Link: "eth0"}}}})
	for i := range c.n {
		a.mail.Put(serviceEvent(a.conv, service(i)))
		a.mail.Put(sliceEvent(a.conv, c.slice(i)))
	}
	a.mail.Put(model.Event{Synced: "bench"})
	for {
		t, err := a.await()
		if err != nil || t.Full {
			return t, err
		}
	}
}

// cpu returns the user and system time so far of the process and of the programs that
// it has run (iptables-restore).
func cpu() time.Duration {
	var sum int64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			panic(err) // cannot happen with these arguments
		}
		sum += u.Utime.Nano() + u.Stime.Nano()
	}
	return time.Duration(sum)
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// rss returns VmRSS and VmHWM in bytes.
func rss() (now, peak uint64) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return statusField(data, "VmRSS:"), statusField(data, "VmHWM:")
}
