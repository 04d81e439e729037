package property

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/mailbox"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/policy"
	"github.com/fairlead/fairlead/test/patience"
)

// agent is the real engine and driver on a fake or real kernel.
type agent struct {
	*engine.Engine
	mail *mailbox.Mailbox
	stop func()
	good atomic.Bool // the last sync completed without an error and left nothing pending
	held atomic.Int64
	last atomic.Value // the result of the last sync, for failure messages
}

// poisoned makes the kernel reject one Service while on is set: a set of ranges rejects ranges that contain each other. While full is set, each Apply
// returns an error that requires a rebuild of both families, until one is rebuilt.
type poisoned struct {
	dataplane.Driver
	on, full *atomic.Bool
}

func (p poisoned) Apply(ctx context.Context, b dataplane.Batch) (dataplane.Applied, error) {
	if p.full.Load() && len(b.Rebuild) == 0 {
		return dataplane.Applied{}, &dataplane.RebuildError{Families: []model.Family{model.IPv4, model.IPv6}, Why: "a test says so"}
	}
	done, err := p.Driver.Apply(ctx, b)
	if err == nil && len(b.Rebuild) > 0 {
		p.full.Store(false)
	}
	return done, err
}

// poisonedKey returns the key of the Service that the kernel may reject.
func poisonedKey() model.ServiceKey { return key(keys - 1) }

func (p poisoned) Render(f *model.Frontend, view *model.NodeView, emit func(dataplane.Object)) {
	if p.on.Load() && f.Guarded && f.Service == poisonedKey() && f.Key.Family == model.IPv4 {
		g := *f
		g.SourceRanges = []netip.Prefix{netip.PrefixFrom(v4(10, 0, 0, 0), 8), netip.PrefixFrom(v4(10, 1, 0, 0), 16)}
		f = &g
	}
	p.Driver.Render(f, view, emit)
}

// settings are the configuration of an agent at its start.
type settings struct {
	primary bool // NodePorts on the primary address
	cluster bool // as with an API server: the cluster exists even without a Node
	minSync time.Duration
	poison  *atomic.Bool
	full    *atomic.Bool
	// surveyor reads concurrently with the agent.
	surveyor nft.Reader
}

func startAgent(t *testing.T, k nft.Kernel, s settings) *agent {
	t.Helper()
	a := &agent{mail: mailbox.New()}
	caps, err := nftables.New(nftables.Params{Kernel: nft.NewFake()}).Probe(t.Context()) // the kernel of the test may be faulty
	check(t, err)
	e := engine.New(engine.Params{
		Driver: poisoned{nftables.New(nftables.Params{Kernel: k, Surveyor: s.surveyor}), s.poison, s.full}, MinSync: s.minSync, Families: []model.Family{model.IPv4, model.IPv6},
		Mailbox: a.mail, NodeName: "n", Sources: []string{"test"}, Inert: caps.Inert, ChunkOps: 40, // several chunks per build
		View: policy.ViewInputs{NodePortPrimary: s.primary, Cluster: s.cluster, MasqueradeBit: 14,
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::1000/116")}},
		OnTurn: func(tu *engine.Turn) {
			if tu.Waits {
				return
			}
			a.good.Store(tu.Err == nil && tu.Pending == 0)
			a.last.Store(fmt.Sprintf("%+v, %d pending, %d held", tu.Err, tu.Pending, tu.Held))
			a.held.Store(int64(tu.Held))
			for _, q := range tu.Quarantined {
				t.Logf("quarantined: %v %v %v", q.Service, q.Objects, q.Err)
			}
		},
	})
	a.Engine = e
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("engine:", err)
		}
	}
	return a
}

func (a *agent) put(evs ...model.Event) {
	a.good.Store(false)
	a.mail.Put(evs...)
}

// end stops an agent that is in sync.
func (a *agent) end(t *testing.T) {
	t.Helper()
	if err := a.sumTells(t.Context()); err != nil {
		t.Error(err)
	}
	a.stop()
}

// sumTells checks that an audit of a kernel in sync reads no object one by one. It retries, because that may be necessary while the agent or the
// kernel is still removing something. Objects that a rebuild empties but cannot delete, because that commit fails, differ until the first audit.
func (a *agent) sumTells(ctx context.Context) error {
	var at engine.Audited
	for range 100 {
		var err error
		if at, err = a.Look(ctx); err == nil && at.Foreign > 0 && at.Missing+at.Different == 0 {
			_, err = a.Audit(ctx)
		}
		if err != nil {
			return err
		}
		if at.Objects > 0 && at.Compared+at.Missing+at.Different+at.Foreign == 0 {
			return nil
		}
		time.Sleep(patience.Pause(50 * time.Millisecond)) // between two polls: there is no notification that the agent is in sync
	}
	return fmt.Errorf("an audit looks up what one sum should tell: %+v", at)
}

// faulty fails a tenth of the commits, half of them after they were applied.
func faulty(k nft.Kernel, r *rand.Rand, on *atomic.Bool) *nft.Faulty {
	draw := nft.RandomCommits(r, 0.1, nft.Fault{Err: unix.ENOBUFS}, nft.Fault{Err: unix.ENOBUFS, After: true})
	return &nft.Faulty{Kernel: k, OnCommit: func(b *nft.Batch) nft.Fault {
		if !on.Load() {
			return nft.Fault{}
		}
		return draw(b)
	}}
}
