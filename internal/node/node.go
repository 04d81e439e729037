package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/link"
	"github.com/fairlead/fairlead/internal/model"
)

// Name is what the source calls itself in model.Event.Synced.
const Name = "host"

const (
	// settle is how long to wait behind a change, so that the several messages of
	// one "ip" command, or of a pod's start, cost one list.
	settle = 5 * time.Millisecond
	// retry is the pause before another attempt to subscribe.
	retry = time.Second
)

// Links is what is needed of kernel/link.
type Links interface {
	Addrs() ([]link.Addr, error)
	Up() ([]link.Link, error)
	Changed() <-chan struct{}
	Close()
}

var _ Links = (*link.Conn)(nil)

// Config says how to watch.
type Config struct {
	Open   func() (Links, error) // nil = link.Open, in the namespace of the process
	Up     func() bool           // whether to report the links that are up, too; nil = never
	Again  <-chan struct{}       // notifies when Up may return something else; may be nil
	Relist time.Duration         // how often to list without a notification; 0 = 30 s
	Log    *slog.Logger          // nil = slog.Default
}

// Watcher watches the machine's addresses. See New.
type Watcher struct {
	config Config
	last   model.HostAddrs
	told   bool // last was delivered
	sick   bool // the Problem of origin was delivered
}

// New makes a Watcher; nothing is read before Run.
func New(c Config) *Watcher {
	if c.Open == nil {
		c.Open = func() (Links, error) { return link.Open() }
	}
	if c.Relist <= 0 {
		c.Relist = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Watcher{config: c}
}

// origin is what Problems of the watching are about.
const origin = "addresses of this machine"

// Run delivers the addresses, then Synced, then every update, until ctx ends, when it
// returns nil. An error is reported as a Problem and retried. The sink is called from
// this goroutine alone.
func (w *Watcher) Run(ctx context.Context, sink func(model.Event)) error {
	for ctx.Err() == nil {
		err := w.watch(ctx, sink)
		if err == nil {
			continue
		}
		if errors.Is(err, link.ErrLost) {
			w.config.Log.Debug("address subscription lost", "err", err)
		} else {
			w.sick = true
			sink(model.Event{Origin: origin, Received: time.Now(), Problems: []model.Problem{{
				Object: origin, Reason: "cannot be read: " + err.Error(),
			}}})
		}
		pause(ctx, retry)
	}
	return nil
}

// watch handles one subscription until it ends.
func (w *Watcher) watch(ctx context.Context, sink func(model.Event)) error {
	links, err := w.config.Open()
	if err != nil {
		return err
	}
	defer links.Close()
	relist := time.NewTicker(w.config.Relist)
	defer relist.Stop()
	for {
		if err := w.list(links, sink); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-relist.C:
		case <-w.config.Again:
		case <-links.Changed():
			pause(ctx, settle)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// list delivers the addresses if they differ from those last delivered.
func (w *Watcher) list(links Links, sink func(model.Event)) error {
	list, err := links.Addrs()
	if err != nil {
		return err
	}
	var up []link.Link
	if w.config.Up != nil && w.config.Up() {
		if up, err = links.Up(); err != nil {
			return err
		}
	}
	now := time.Now()
	if w.sick {
		w.sick = false
		sink(model.Event{Origin: origin, Received: now})
	}
	host := model.HostAddrs{Addrs: make([]model.HostAddr, len(list))}
	for i, a := range list {
		host.Addrs[i] = model.HostAddr{Prefix: a.Prefix, Link: a.Link}
	}
	for _, l := range up {
		host.Links = append(host.Links, model.Link{Name: l.Name, Index: l.Index, MTU: l.MTU})
	}
	if w.told && slices.Equal(host.Addrs, w.last.Addrs) && slices.Equal(host.Links, w.last.Links) {
		return nil
	}
	first := !w.told
	w.last, w.told = host, true
	event := model.Event{Host: &host, Received: now}
	if !first {
		event.Trigger = now
	}
	sink(event)
	if first {
		sink(model.Event{Synced: Name, Received: now})
	}
	return nil
}
