package nftsave

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
	"github.com/fairlead/fairlead/internal/kernel/netlink"
)

// ErrUnknown: a rule of a chain that was asked for, or one that leads to such a chain, is
// of a kind that only the program can print.
var ErrUnknown = errors.New("a rule that only iptables-nft-save can print")

// sockets is how many chains are read at once: the kernel works through a dump on the
// processor of whoever asks, and takes most of the time.
const sockets = 2

// Config says where a Reader opens its sockets.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
	// Wrap puts something in front of each socket. It is for tests.
	Wrap func(netlink.Wire) netlink.Wire
}

// Reader reads tables. Its sockets belong to one network namespace for life.
type Reader struct {
	turn    chan struct{} // holds one token, for the one who reads
	dumpers [sockets]*dumper
	listed  map[xt.Family]listing
}

// Request is what a Read is about.
type Request struct {
	Family xt.Family
	Table  string
	// Ours tells which chains' rules are wanted. Of built-in chains those rules are printed
	// that lead to one of them.
	Ours func(chain string) bool
	// Skip, unless it is nil, is asked of each chain that is ours before any is read, and tells
	// whether it is left out.
	Skip func(chain string) bool
	// Yield is called before each chain is read, by several goroutines. It may wait; an
	// error ends the reading.
	Yield func(context.Context) error
}

// Open opens a Reader. It needs CAP_NET_ADMIN over the namespace, and CAP_SYS_ADMIN to
// enter one given by descriptor.
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

// Read hands the lines of one table to emit, each valid until emit returns: the
// declarations and rules of chains that are ours, and the rules of built-in chains that
// lead to one of them, chain by chain. A table that does not exist has no lines. After an
// error, which ErrUnknown may be, what was emitted is not the whole.
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
