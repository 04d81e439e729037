package engine

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/mailbox"
)

// heap is what is reachable.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Before the sources are in, the lists cost what the objects in them cost: no decision
// is kept for later. Each change is told by a turn of its own, as a list in pages is.
func TestMemoryBeforeSynced(t *testing.T) {
	mail := &countingMailbox{Mailbox: mailbox.New()}
	turns := make(chan struct{}, 16)
	b := newBench(newMemDriver(), func(p *Params) {
		p.Mailbox, p.OnTurn = mail, func(*Turn) { turns <- struct{}{} }
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	empty := heap()
	const services, pages = 2_000, 5
	for range pages {
		for i := range services {
			mail.Put(svcEvent(i, 80))
			mail.Put(sliceEvent(i, 10*i, 10*i+1, 10*i+2, 10*i+3, 10*i+4, 10*i+5, 10*i+6, 10*i+7, 10*i+8, 10*i+9))
		}
		for deadline := time.Now().Add(time.Minute); mail.Len() > 0 && time.Now().Before(deadline); {
			runtime.Gosched()
		}
	}
	if err := b.Inspect(ctx, func(View) {}); err != nil { // what was drained is folded
		t.Fatal(err)
	}
	before := heap() - empty
	mail.Put(synced)
	select {
	case <-turns:
	case <-time.After(time.Minute):
		t.Fatal("no turn")
	}
	if err := b.Inspect(ctx, func(View) {}); err != nil {
		t.Fatal(err)
	}
	after := heap() - empty
	t.Logf("%d endpoints: %d KiB before Synced, %d KiB after", 10*services, before/1024, after/1024)
	if before > after {
		t.Errorf("%d bytes before Synced, %d after", before, after)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
