package fastpath

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

const (
	rounds = 40
	// piece is sent each way in a round: more than one packet.
	piece = 4000
	// answerIn is how long a round may take. A connection that the fast path breaks stands still for ever.
	answerIn = 2 * time.Second
)

// Params are for tests.
type Params struct {
	Patience func(time.Duration) time.Duration // scales answerIn; nil: unscaled
	// Halfway is called on the node when half of the bytes are through; may be nil.
	Halfway func() error
}

// Test has a translated TCP connection of each family taken over, and checks that its
// bytes still arrive. It returns nil if they do, and an *UntestableError if the result
// is unknown. It takes some milliseconds if all is well, and some seconds at most.
func Test(ctx context.Context, p Params) error {
	if p.Patience == nil {
		p.Patience = func(d time.Duration) time.Duration { return d }
	}
	l, err := newLab()
	if err != nil {
		return err
	}
	defer l.close()
	var k *nft.Conn
	if err := l.node.do(func() (err error) { k, err = nft.Open(nft.Config{}); return err }); err != nil {
		return &UntestableError{err}
	}
	defer func() { _ = k.Close() }()
	for _, f := range families() {
		if err := l.try(ctx, k, &f, &p); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// try tests one family.
func (l *lab) try(ctx context.Context, k nft.Kernel, f *family, p *Params) error {
	if err := write(ctx, k, f); err != nil {
		return err
	}
	var listener net.Listener
	if err := l.server.do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(f.server.Addr(), serverPort).String())
		return err
	}); err != nil {
		return &UntestableError{err}
	}
	defer func() { _ = listener.Close() }()
	go echo(listener)
	var c net.Conn
	if err := l.client.do(func() (err error) {
		c, err = (&net.Dialer{Timeout: p.Patience(answerIn)}).DialContext(ctx, "tcp", f.service.String())
		return err
	}); err != nil {
		return &UntestableError{err} // nothing is taken over yet
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for i := range rounds {
		if i == rounds/2 && p.Halfway != nil {
			if err := l.node.do(p.Halfway); err != nil {
				return &UntestableError{err}
			}
		}
		if err := exchange(c, byte(i), p.Patience(answerIn)); err != nil {
			taken, seen, _ := counted(ctx, k, f) // of what is left when it cannot be read
			if taken == 0 {
				return &UntestableError{err}
			}
			return fmt.Errorf("a translated TCP connection stalls on the fast path, %d packets after it was offloaded: %w", seen, err)
		}
	}
	taken, seen, err := counted(ctx, k, f)
	switch {
	case err != nil:
		return &UntestableError{err}
	case taken == 0:
		return fmt.Errorf("the kernel does not offload a translated TCP connection")
	case seen >= rounds*2:
		return fmt.Errorf("packets of an offloaded connection still traverse the rules (%d packets)", seen)
	}
	return nil
}

func echo(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = io.Copy(c, c) // the client reports errors
}

// exchange sends a piece and wants it back.
func exchange(c net.Conn, fill byte, within time.Duration) error {
	want, got := bytes.Repeat([]byte{fill}, piece), make([]byte, piece)
	_ = c.SetDeadline(time.Now().Add(within)) // an error on a closed connection is returned by Write
	if _, err := c.Write(want); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("received different data than sent")
	}
	return nil
}
