package nftsave

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// ErrUnknown: a rule of a requested chain, or one that jumps to such a chain, is
// of a kind that only the program can print.
var ErrUnknown = errors.New("a rule that only iptables-nft-save can print")

// sockets is the number of concurrent dumps: the kernel runs a dump on the
// requester's processor, and takes most of the time.
const sockets = 2

// Config configures a Reader or a Listener.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
	// Wrap, unless it is nil, wraps each socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Reader reads tables. Its sockets stay in one network namespace.
type Reader struct {
	turn    chan struct{} // a semaphore of size 1, held during a Read
	dumpers [sockets]*dumper
	listed  map[xt.Family]listing
}

// Request is the request of a Read.
type Request struct {
	Family xt.Family
	Table  string
	// Ours reports whether a chain is owned, so that its rules are requested. Of built-in chains
	// the rules that jump to an owned chain are printed.
	Ours func(chain string) bool
	// Skip, unless it is nil, is called for each owned chain before any chain is read, and reports
	// whether to skip it.
	Skip func(chain string) bool
	// Yield is called before each chain is read, by several goroutines. It may block; an
	// error aborts the read.
	Yield func(context.Context) error
}

// Open returns a Reader. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to
// enter a namespace passed by descriptor.
func Open(cfg Config) (*Reader, error) {
	r := &Reader{turn: make(chan struct{}, 1), listed: map[xt.Family]listing{}}
	for i := range r.dumpers {
		conn, err := netlink.Open(netlink.Config{NetNS: cfg.NetNS, Wrap: cfg.Wrap})
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.dumpers[i] = &dumper{conn: conn}
	}
	return r, nil
}

// Close closes the sockets.
func (r *Reader) Close() error {
	var errs []error
	for _, d := range r.dumpers {
		if d != nil {
			errs = append(errs, d.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// Read calls emit with the lines of one table, each valid until emit returns: the
// declarations and rules of owned chains, and the rules of built-in chains that
// jump to an owned chain, chain by chain. A table that does not exist has no lines. After an
// error, for example ErrUnknown, the emitted lines are incomplete.
func (r *Reader) Read(ctx context.Context, q Request, emit func(line []byte) error) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	all, err := r.chains(ctx, q.Family)
	if err != nil {
		return fmt.Errorf("list chains: %w", err)
	}
	var list []chain
	for _, c := range all[q.Table] {
		switch {
		case c.builtIn:
		case !q.Ours(c.name), q.Skip != nil && q.Skip(c.name):
			continue
		}
		list = append(list, c)
	}
	if err := r.parallel(ctx, q, list, emit); err != nil {
		return fmt.Errorf("read table %s: %w", q.Table, err)
	}
	return nil
}
