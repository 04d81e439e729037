package k8s

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// Name is the source's name in model.Event.Synced.
const Name = "k8s"

// Config specifies which server and which objects to watch.
type Config struct {
	Kubeconfig  string // "" with Master "" = the pod's service account
	Master      string // URL that overrides the kubeconfig's
	ContentType string // "" = protobuf
	QPS         float32
	Burst       int
	NodeName    string // the Node that is watched; "" = none
	Headless    bool   // watch headless Services and their slices, and those of other proxies, for DNS
	UserAgent   string
	Log         *slog.Logger // nil = slog.Default
}

// Source watches an API server. See New.
type Source struct {
	config  Config
	clients *clients
	convert *convert.Converter
	digest  digester
	started time.Time
	tracker *tracker

	resources   []*resource
	serviceMark func(name) (mark, bool)
	sink        func(model.Event) // set by Run before any reflector runs
}

// New reads the kubeconfig and the certificates. It sends no request to the server
// before Run.
func New(c Config) (*Source, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	clients, err := newClients(&c)
	if err != nil {
		return nil, withoutPasswords(err)
	}
	s := &Source{
		config: c, clients: clients, convert: convert.New(), digest: digester{maphash.MakeSeed()},
		started: time.Now(),
	}
	s.tracker = &tracker{sink: s.put, now: time.Now, since: s.started, server: clients.server}
	s.resources = []*resource{s.services(), s.slices(), s.cidrs()}
	if c.NodeName != "" {
		s.resources = append(s.resources, s.node())
	}
	return s, nil
}

// put passes an event to the sink.
func (s *Source) put(e model.Event) {
	e.Received = time.Now()
	s.sink(e)
}

// Status reports how fresh the delivered state is. It is safe for concurrent use.
func (s *Source) Status() Status { return s.tracker.status() }

// Run delivers the objects of the server, then Synced, then every change, until ctx
// ends. Then it returns nil. A server that cannot be reached, or that refuses, is a
// Problem, and Run retries. So Run returns no other error. The sink is called from
// several goroutines.
func (s *Source) Run(ctx context.Context, sink func(model.Event)) error {
	s.sink = sink
	silence := time.AfterFunc(firstAnswer, s.tracker.silent)
	defer silence.Stop()
	ctx = klog.NewContext(ctx, klog.New(quiet{s.config.Log}))
	var running sync.WaitGroup
	for _, r := range s.resources {
		running.Go(func() { s.reflector(ctx, r).RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// The pauses between attempts are client-go's, except for the first, so that a
// server that was only restarted is found again at once. Jitter makes the longest
// pause up to twice as long, so that 5 000 nodes with 4 reflectors each send a
// server that returns 450 requests a second, and not in step.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
	optionalWait = time.Minute // for a resource that may never exist
	// firstAnswer is the time after which a server that has neither answered nor
	// refused is a Problem.
	firstAnswer = 900 * time.Millisecond
)

func (s *Source) reflector(ctx context.Context, r *resource) *cache.Reflector {
	longest := longestPause
	if r.state.optional {
		longest = optionalWait
	}
	lw := &listWatch{
		client: r.client, resource: r.name, kind: reflect.TypeOf(r.expected).Elem().Name(), narrow: r.narrow,
		answered:  func(err error) { s.answered(r, err) },
		listError: func(err error) { s.listError(r, err) },
		wentBack: func() {
			s.config.Log.Warn("the API server's history is older than the data that it sent before, as after a restore of etcd from a backup; listing all objects again", "resource", r.name)
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, r.expected, r.store, cache.ReflectorOptions{
		Name:    r.name,
		Clock:   untilDone{ctx: ctx},
		Backoff: pauses(longest),
	})
	return reflector
}

func pauses(longest time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: firstPause, Cap: longest, Factor: 2, Jitter: 1, Steps: 20}
}

// answered records how the server answered.
func (s *Source) answered(r *resource, err error) {
	if r.state.optional && apierrors.IsNotFound(err) {
		return // a cluster without an optional resource is no problem
	}
	s.tracker.answered(r.state, err)
}

// listError handles the error of a list. For an optional resource that the server
// does not have or does not allow, it counts the list as empty.
func (s *Source) listError(r *resource, err error) {
	switch {
	case errors.Is(err, context.Canceled) || isStale(err):
	case r.state.optional && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		s.tracker.listed(r.state)
	default:
		s.tracker.refused(r.state)
	}
}

// quiet writes client-go's log lines as debug lines. What matters of them is
// reported as Problems, once, in words for users.
type quiet struct{ log *slog.Logger }

var _ klog.LogSink = quiet{}

func (q quiet) Init(klog.RuntimeInfo) {}

func (q quiet) Enabled(int) bool { return q.log.Enabled(context.Background(), slog.LevelDebug) }

func (q quiet) Info(_ int, text string, pairs ...any) { q.log.Debug(text, pairs...) }

func (q quiet) Error(err error, text string, pairs ...any) {
	q.log.Debug(text, append(pairs, "err", err)...)
}

func (q quiet) WithValues(pairs ...any) klog.LogSink { return quiet{q.log.With(pairs...)} }

func (q quiet) WithName(name string) klog.LogSink { return quiet{q.log.With("part", name)} }
