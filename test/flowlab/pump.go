package flowlab

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"
)

// Pump is a stream that sends all the time.
type Pump struct {
	Stream
	mu     sync.Mutex
	answer string // the last one
	err    error  // of the read or write that ended it; of UDP that of the last read
}

// Pump sends a line each few milliseconds until the test or the stream ends. UDP goes on after an error: what no longer has an
// endpoint for a moment is answered by one.
func (s Stream) Pump(every time.Duration) *Pump {
	p := &Pump{Stream: s}
	stopped := make(chan struct{})
	var done sync.WaitGroup
	s.l.Cleanup(func() { close(stopped); _ = s.Close(); done.Wait() })
	_ = s.SetDeadline(time.Time{})
	ended := func() bool {
		select {
		case <-stopped:
			return true
		default:
			return false
		}
	}
	done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for !ended() {
			if _, err := s.Write([]byte("who\n")); s.over(err) {
				p.note("", err) // a reset is told once, to whoever asks first
				return
			}
			<-tick.C
		}
	})
	done.Go(func() {
		buf := make([]byte, 4096)
		for !ended() {
			n, err := s.Read(buf)
			p.note(string(buf[:n]), err)
			if s.over(err) {
				return
			}
		}
	})
	return p
}

// over reports whether an error of a read or write is the last one. A closed socket of UDP gives one at once, again and again.
func (s Stream) over(err error) bool {
	return err != nil && s.Network == "tcp" || errors.Is(err, net.ErrClosed)
}

func (p *Pump) note(text string, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	p.mu.Lock()
	defer p.mu.Unlock()
	if text != "" {
		p.answer = lines[len(lines)-1]
	}
	if p.Network == "tcp" {
		err = errors.Join(p.err, err)
	}
	p.err = err
}

// Last returns the last answer, and the error that ended the stream.
func (p *Pump) Last() (answer string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.err
}
