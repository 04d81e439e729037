package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// agent is the straight line without servers.
type agent struct {
	mail   *mailbox.Mailbox
	count  *nft.Counter
	conv   *convert.Converter
	turns  chan engine.Turn
	cancel context.CancelFunc
	done   chan error
	kernel *nft.Conn
}

func start() (*agent, error) {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return nil, err
	}
	a := &agent{mail: mailbox.New(), count: nft.NewCounter(k), conv: convert.New(), kernel: k,
		turns: make(chan engine.Turn, 4096), // more than any phase makes before it reads them
		done:  make(chan error, 1)}
	d := nftables.New(nftables.Params{Kernel: a.count})
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	caps, err := d.Probe(ctx)
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Params{Driver: d, Families: caps.Families, Mailbox: a.mail, NodeName: "node0", Sources: []string{"bench"},
		View:   policy.ViewInputs{NodePortPrimary: true, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, MasqueradeBit: 14},
		OnTurn: func(t *engine.Turn) { a.turns <- summary(t) }})
	go func() { a.done <- e.Run(ctx) }()
	return a, nil
}

// summary keeps no reference to what the engine holds.
func summary(t *engine.Turn) engine.Turn {
	return engine.Turn{Started: t.Started, Done: t.Done, Phases: t.Phases, Err: t.Err, Full: t.Full,
		SliceEvents: t.SliceEvents, Operations: t.Operations, Batches: t.Batches, Pending: t.Pending, Drift: t.Drift}
}

// await gives the next turn, or fails after a minute.
func (a *agent) await() (engine.Turn, error) {
	select {
	case t := <-a.turns:
		if t.Err != nil {
			return t, t.Err
		}
		return t, nil
	case <-time.After(time.Minute):
		return engine.Turn{}, fmt.Errorf("no sync within a minute")
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

// cpu is the process's user and system time so far.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot happen with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// rss is VmRSS and VmHWM in bytes.
func rss() (now, peak uint64) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	return statusField(data, "VmRSS:"), statusField(data, "VmHWM:")
}
