package nft

import (
	"context"
	"slices"
)

// fakeWatcher is one running Watch: the queue of its notifications, and its notify channel.
type fakeWatcher struct {
	pending []Move // guarded by Fake.mu
	bell    chan struct{}
}

// Watch implements Kernel.
func (f *Fake) Watch(ctx context.Context, moved func(Move)) error {
	w := &fakeWatcher{bell: make(chan struct{}, 1)}
	f.mu.Lock()
	f.watchers[w] = true
	w.tell(Move{Generation: f.gen, Lost: true})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, w)
		f.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.bell:
		}
		f.mu.Lock()
		news := slices.Clone(w.pending)
		w.pending = w.pending[:0]
		f.mu.Unlock()
		for _, m := range news {
			moved(m)
		}
	}
}

func (w *fakeWatcher) tell(m Move) {
	w.pending = append(w.pending, m)
	select {
	case w.bell <- struct{}{}:
	default: // a notification is pending already
	}
}

// Lose drops all pending notifications of the watchers, as an overflow of their buffer does.
func (f *Fake) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.pending = w.pending[:0]
		w.tell(Move{Generation: f.gen, Lost: true})
	}
}

// Neighbour returns f as another program uses it: its commits are foreign to f's watchers. It is for writing; watch f.
func (f *Fake) Neighbour() Kernel { return fakeNeighbour{f} }

type fakeNeighbour struct{ *Fake }

func (n fakeNeighbour) Commit(ctx context.Context, b *Batch) (Generation, error) {
	return n.commit(ctx, b, false)
}
