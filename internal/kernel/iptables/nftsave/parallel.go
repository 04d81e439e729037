package nftsave

import (
	"bytes"
	"context"
	"runtime"
	"sync"
)

const (
	// partChains is the number of chains in a part. After each part the goroutine
	// yields to others: a part takes less than a millisecond.
	partChains = 16
	// partsAhead is the number of parts that a dumper may read ahead of the consumer.
	partsAhead = 2
)

// part is the lines of some chains, each ended by a line feed.
type part struct {
	text []byte
	err  error
}

// lane is the queue of one dumper's parts.
type lane struct {
	read chan part   // size 0: free bounds the parts that are read ahead
	free chan []byte // buffers to read into; size partsAhead
}

// parallel reads chains on all sockets concurrently and emits their lines in the chains' order:
// the parts are assigned to the dumpers in rotation.
func (r *Reader) parallel(ctx context.Context, q Request, list []chain, emit func([]byte) error) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var lanes [sockets]lane
	for i, d := range r.dumpers {
		lanes[i] = lane{make(chan part), make(chan []byte, partsAhead)}
		for range partsAhead {
			lanes[i].free <- nil
		}
		running.Go(func() { d.parts(ctx, q, skip(list, i*partChains), &lanes[i]) })
	}
	for n := 0; n*partChains < len(list); n++ {
		l := &lanes[n%sockets]
		select {
		case p := <-l.read:
			if p.err != nil {
				return p.err
			}
			if err := lines(p.text, emit); err != nil {
				return err
			}
			l.free <- p.text
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func skip(list []chain, n int) []chain { return list[min(n, len(list)):] }

// parts reads the first part of list, then every sockets-th part.
func (d *dumper) parts(ctx context.Context, q Request, list []chain, l *lane) {
	failed := d.settle(ctx)
	for len(list) > 0 {
		p := part{err: failed}
		select {
		case p.text = <-l.free:
		case <-ctx.Done():
			return
		}
		p.text = p.text[:0]
		for i := range min(partChains, len(list)) {
			if p.err == nil {
				p.err = q.Yield(ctx)
			}
			if p.err == nil {
				p.text, p.err = d.chain(ctx, &q, &list[i], p.text)
			}
			if p.err != nil {
				break
			}
		}
		select {
		case l.read <- p:
		case <-ctx.Done():
			return
		}
		if p.err != nil {
			return
		}
		list = skip(list, sockets*partChains)
		runtime.Gosched()
	}
}

func lines(text []byte, emit func([]byte) error) error {
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		if err := emit(text[:end]); err != nil {
			return err
		}
		text = text[end+1:]
	}
	return nil
}
