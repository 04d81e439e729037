package nft

import (
	"context"
	"slices"
)

// fakeWatcher is one running Watch: what it has not delivered yet, and the bell that says so.
type fakeWatcher struct {
	pending []Generation // guarded by Fake.mu
	bell    chan struct{}
}

// Watch implements Kernel.
func (f *Fake) Watch(ctx context.Context, moved func(Generation)) error {
	w := &fakeWatcher{bell: make(chan struct{}, 1)}
	f.mu.Lock()
	f.watchers[w] = true
	w.tell(f.gen)
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
		for _, g := range news {
			moved(g)
		}
	}
}

func (w *fakeWatcher) tell(g Generation) {
	w.pending = append(w.pending, g)
	select {
	case w.bell <- struct{}{}:
	default: // it has been rung already
	}
}
