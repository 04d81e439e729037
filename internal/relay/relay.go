package relay

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/model"
)

// Params configure a Relay.
type Params struct {
	// Descriptors is how many file descriptors listeners, connections and pipes may
	// use together; 0 = what the process may open, less a reserve.
	Descriptors int
	// MostOfOne bounds the descriptors of one Service in addition to the fair share; 0 = no
	// further bound. A TCP connection has two, a UDP client one.
	MostOfOne int
	// EndGone ends connections to removed endpoints (--reset-gone-endpoints).
	EndGone bool
	// EndpointGrace is how long they continue otherwise, unless the Service sets it; 0 = for ever.
	EndpointGrace time.Duration
	// OnLoop is called for an endpoint that is a socket of this Relay and loops back to its own
	// Service, at most every logEvery for a Service; nil = not called.
	OnLoop func(svc model.ServiceKey, endpoint netip.AddrPort, err error)
	Log    *slog.Logger // nil = discard
}

const (
	reserve     = 128 // descriptors for everything else in the process
	bufferBytes = 16 << 10
	logEvery    = 10 * time.Second // least pause between two lines about one Service
)

// Relay is what all listeners share.
type Relay struct {
	p          Params
	budget     budget
	ports      budget // of UDP clients: each has one of this network namespace
	lrus       lrus
	affinities affinities
	own        sync.Map // place → *Listener: the sockets that are open
	pipes      pipes
	buffers    sync.Pool // *[]byte of bufferBytes, for bytes that no pipe takes
	grams      sync.Pool // *[]byte of burstBuffer
	where      atomic.Pointer[Whereabouts]
	counts     counts
	work       sync.WaitGroup  // one for each connection and UDP client
	ctx        context.Context // ends with the Relay
	end        context.CancelFunc

	start     time.Time
	limits    limits
	workers   []*worker
	working   sync.WaitGroup
	cuts      bool      // the kernel cuts bursts of datagrams
	ephemeral [2]uint16 // the ports that the kernel assigns to sockets bound without one

	mu     sync.Mutex
	logged map[model.ServiceKey]time.Time
}

// New returns a Relay.
func New(p Params) *Relay {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Descriptors <= 0 {
		p.Descriptors = available()
	}
	made := min(p.Descriptors/16, 256)
	r := &Relay{p: p, start: time.Now(), limits: usual(), ephemeral: ephemeralPorts(), cuts: cuts(), logged: map[model.ServiceKey]time.Time{}}
	r.budget = budget{none: errFull, free: p.Descriptors - 2*made, most: p.MostOfOne, held: map[model.ServiceKey]int{}, mostListeners: p.Descriptors / 4 * 3}
	r.ports = budget{none: errPorts, free: portsOfClients(r.ephemeral), held: map[model.ServiceKey]int{}}
	r.affinities.by = map[portKey]*affinity{}
	r.lrus.by = map[model.ServiceKey]*lru{}
	r.pipes.left = made
	r.buffers.New = func() any { b := make([]byte, bufferBytes); return &b }
	r.grams.New = func() any { b := make([]byte, burstBuffer); return &b }
	r.where.Store(&Whereabouts{})
	r.ctx, r.end = context.WithCancel(context.Background())
	for range min(runtime.GOMAXPROCS(0), maxWorkers) {
		w, err := newWorker(r)
		if err != nil { // the workers that were started do the work
			p.Log.Warn("cannot relay connections on all processors", "error", err)
			break
		}
		r.workers = append(r.workers, w)
		r.working.Go(w.run)
	}
	return r
}

// available returns how many descriptors the relay may use. Go has raised the soft limit to the hard one.
func available() int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return availableOf(1024)
	}
	return availableOf(int(min(lim.Cur, 1<<20)))
}

// availableOf returns the relay's share of the process's limit. Under a low limit it is a third: without descriptors of its own the agent answers neither
// health checks nor fairlead status, and cannot read manifests.
func availableOf(limit int) int { return max(limit-reserve, limit/3) }

// SetWhereabouts sets which addresses are pods' and which are this node's. Filters of open
// listeners are updated when their Target is next set.
func (r *Relay) SetWhereabouts(w Whereabouts) { r.where.Store(&w) }

// Close ends all connections and waits for their goroutines. Listeners must have been
// closed before.
func (r *Relay) Close() {
	r.end()
	for _, w := range r.workers {
		w.end()
	}
	r.working.Wait()
	r.work.Wait()
	r.pipes.close()
}

// complain logs about a Service, at a limited rate: a client that exceeds a limit must not
// fill the log as well. It reports whether it has logged.
func (r *Relay) complain(svc model.ServiceKey, what string, err error) bool {
	now := time.Now()
	r.mu.Lock()
	last, known := r.logged[svc]
	quiet := known && now.Sub(last) < logEvery
	if !quiet {
		r.logged[svc] = now
		for k, at := range r.logged {
			if now.Sub(at) >= logEvery {
				delete(r.logged, k)
			}
		}
	}
	r.mu.Unlock()
	if !quiet {
		r.p.Log.Warn(what, "service", svc, "error", err)
	}
	return !quiet
}
