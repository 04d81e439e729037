package nft

import (
	"context"

	"github.com/mdlayher/netlink"
)

// Config says where Open opens its socket.
type Config struct {
	NetNS int // file descriptor of a network namespace; 0: the calling thread's
}

// Conn is the real Kernel: one socket for everything but Watch, bound to one network namespace for life.
type Conn struct {
	nl *netlink.Conn
}

var _ Kernel = (*Conn)(nil)

// Open opens a Conn. It needs CAP_NET_ADMIN over the namespace.
func Open(cfg Config) (*Conn, error) { return nil, nil }

// Close closes the sockets; a running Watch ends.
func (c *Conn) Close() error { return nil }

func (c *Conn) Commit(ctx context.Context, b *Batch) (Generation, error) { return 0, nil }
func (c *Conn) Generation(ctx context.Context) (Generation, error)       { return 0, nil }
func (c *Conn) Tables(ctx context.Context) ([]Table, error)              { return nil, nil }
func (c *Conn) Sets(ctx context.Context, t TableRef) ([]Set, error)      { return nil, nil }
func (c *Conn) Chains(ctx context.Context, t TableRef) ([]Chain, error)  { return nil, nil }
func (c *Conn) Rules(ctx context.Context, t TableRef) ([]Rule, error)    { return nil, nil }
func (c *Conn) Elements(ctx context.Context, s SetRef, emit func(*Element) error) error {
	return nil
}
func (c *Conn) Watch(ctx context.Context, moved func(Generation)) error { return nil }
