package app

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane/iptables"
	"github.com/fairlead/fairlead/internal/dataplane/ipvs"
	"github.com/fairlead/fairlead/internal/dataplane/nftables"
	"github.com/fairlead/fairlead/internal/engine"
	kernel "github.com/fairlead/fairlead/internal/kernel/conntrack"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/metrics"
	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/traffic"
)

// refusal is the key of a data plane's counter of refused or dropped first packets to one destination.
type refusal struct {
	port     traffic.ServicePort // if the data plane does not report it, protocol and to are set instead
	protocol model.Protocol
	to       netip.AddrPort
	dropped  bool // not refused
}

// refusals reads the counters of a data plane, and calls emit for each.
type refusals func(ctx context.Context, emit func(refusal, uint64)) error

// serviceTraffic counts traffic by Service. Connections come as conntrack's events: nothing is written to the kernel for them, in any mode.
// Packets that are refused or dropped never get into conntrack: the rules that do it count them, and are read at a scrape.
type serviceTraffic struct {
	log    logger
	count  *traffic.Counter
	events *kernel.Events
	read   refusals // nil: this mode does not count them

	mu   sync.Mutex // guards what follows
	last map[refusal]uint64
	next time.Time // when they may be read again
}

// readRest is the pause after a read, in multiples of its duration: in an iptables mode a read of the rules runs programs.
const readRest = 20

// readRefusalsOfNFTables reads the sets that nftables mode counts in, on a connection of its own.
func (o *opened) readRefusalsOfNFTables() error {
	k, err := nft.Open(nft.Config{})
	if err != nil {
		return fmt.Errorf("open a netlink socket to count refusals: %w", err)
	}
	o.closers = append(o.closers, k.Close)
	o.refusals = func(ctx context.Context, emit func(refusal, uint64)) error {
		return nftables.Refusals(ctx, k, func(r nftables.Refusal) { emit(refusal{protocol: r.Protocol, to: r.To, dropped: r.Dropped}, r.Packets) })
	}
	return nil
}

// readRefusalsOfIPTables reads the counters of rules.
func (o *opened) readRefusalsOfIPTables(k iptables.Counts) {
	o.refusals = func(ctx context.Context, emit func(refusal, uint64)) error {
		return iptables.Refusals(ctx, k, func(r iptables.Refusal) {
			emit(refusal{port: traffic.ServicePort{Service: r.Service, Port: r.Port}, dropped: r.Dropped}, r.Packets)
		})
	}
}

// countServices begins to count, if configured. If that is not possible it logs a warning, and the agent starts.
func (a *agent) countServices(read refusals) {
	if a.cfg.ServiceMetrics == 0 {
		return
	}
	events, err := kernel.OpenEvents(a.cfg.Mode != ipvs.Name) // IPVS translates without a rule of netfilter
	if err != nil {
		a.log.Warn("--service-metrics: connections cannot be counted", "error", err)
		return
	}
	s := &serviceTraffic{log: a.log, count: traffic.New(a.cfg.ServiceMetrics), events: events, read: read}
	a.traffic = s
	if a.events != nil && read != nil {
		a.events.requests, a.events.here = s, a.recorder.Warn
	}
	a.metrics.ByService(s.rows)
	a.add("numbers by Service", s.run)
	a.add("places of Services", s.settle)
}

// run counts until ctx ends.
func (s *serviceTraffic) run(ctx context.Context) error {
	s.readRefusals() // what an earlier agent left
	defer func() { _ = s.events.Close() }()
	err := s.events.Follow(ctx, s.happened, s.count.Lost)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("--service-metrics: connections are no longer counted until the next start", "error", err)
	}
	return nil
}

// settle applies the engine's decisions to the counter when no event and no scrape does.
func (s *serviceTraffic) settle(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.count.News():
			s.count.Settle()
		}
	}
}

// happened handles one event of conntrack.
func (s *serviceTraffic) happened(e *kernel.Event) {
	d := traffic.Counts{Sent: e.Sent, Received: e.Received}
	switch {
	case !e.Ended:
		d.Connections = 1
	case !e.Replied:
		d.Unanswered = 1
	}
	if d == (traffic.Counts{}) || !e.Translated() {
		return
	}
	s.count.Happened(model.Protocol(e.Protocol), e.Orig.Dst, e.Reply.Src, d)
}

// aboutToWrite adds the Frontends to which connections may begin before the sync is reported.
func (s *serviceTraffic) aboutToWrite(decided []engine.Decided) {
	for i := range decided {
		if list := decided[i].Result.Frontends; len(list) > 0 {
			s.count.Decided(decided[i].Key, list)
		}
	}
}

// turn updates the counter with the result of a sync of the engine.
func (s *serviceTraffic) turn(t *engine.Turn) {
	if t.View != nil {
		s.count.NodePorts(t.View.NodePortAddrs)
	}
	for i := range t.Decided {
		s.count.Decided(t.Decided[i].Key, t.Decided[i].Result.Frontends)
	}
}

// rows returns the counts for the metrics.
func (s *serviceTraffic) rows() metrics.Traffic {
	s.readRefusals()
	r := s.count.Rows(time.Now())
	out := metrics.Traffic{Losses: r.Lost, Refusals: s.read != nil}
	for i := range r.Services {
		row := &r.Services[i]
		x := rowOf(row.Service.Namespace, row.Service.Name, row.Port, &row.Counts)
		for _, e := range row.Endpoints {
			x.Endpoints = append(x.Endpoints, metrics.EndpointTraffic{Endpoint: e.At.String(), TrafficCounts: countsOf(&e.Counts)})
		}
		if row.NotNamed != (traffic.Counts{}) {
			x.Endpoints = append(x.Endpoints, metrics.EndpointTraffic{Endpoint: allOthers, TrafficCounts: countsOf(&row.NotNamed)})
		}
		out.Services = append(out.Services, x)
	}
	if r.Others != (traffic.Counts{}) {
		out.Services = append(out.Services, rowOf(allOthers, allOthers, allOthers, &r.Others))
	}
	return out
}

// allOthers is the name of the sum of all that has no row of its own. No object and no port can have this name.
const allOthers = "(other)"

func rowOf(namespace, service, port string, c *traffic.Counts) metrics.ServiceTraffic {
	return metrics.ServiceTraffic{Namespace: namespace, Service: service, Port: port, TrafficCounts: countsOf(c), Refused: c.Refused, Dropped: c.Dropped}
}

func countsOf(c *traffic.Counts) metrics.TrafficCounts {
	return metrics.TrafficCounts{Connections: c.Connections, Unanswered: c.Unanswered, Sent: c.Sent, Received: c.Received}
}

// refusedAt returns the time when a refusal of a Service was counted last; zero if none was.
func (s *serviceTraffic) refusedAt(svc model.ServiceKey) time.Time { return s.count.RefusedAt(svc) }

// readRefusals adds what the data plane has counted since the last read. A counter that has decreased was reset to 0.
func (s *serviceTraffic) readRefusals() {
	if s.read == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := time.Now()
	if begun.Before(s.next) {
		return
	}
	defer func() { s.next = time.Now().Add(readRest * time.Since(begun)) }()
	ctx, stop := context.WithTimeout(context.Background(), countFor)
	defer stop()
	first, now := s.last == nil, map[refusal]uint64{}
	err := s.read(ctx, func(r refusal, n uint64) { now[r] += n })
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("--service-metrics: cannot read the counters of refused connections", "error", err)
	}
	if err != nil {
		return
	}
	for r, n := range now {
		before := s.last[r]
		if first { // of an earlier agent
			before = n
		}
		if n < before {
			before = 0
		}
		d := traffic.Counts{Refused: n - before}
		if r.dropped {
			d = traffic.Counts{Dropped: n - before}
		}
		switch {
		case n == before:
		case r.to.IsValid():
			s.count.Happened(r.protocol, r.to, netip.AddrPort{}, d)
		default:
			s.count.HappenedTo(r.port, d)
		}
	}
	s.last = now
}
