package iptables

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// nftables reads nf_tables without the programs, and tells its generation.
type nftables struct {
	*generation
	reader *nftsave.Reader
	// turn is held by a Restore, and by a reading for a chain at a time: a change goes first,
	// and has the processors for itself.
	turn   sync.RWMutex
	ledger ledger
	// others are heard from the first reading on, but for the time of a Restore.
	others  *nftsave.Listener
	hearing sync.Mutex // held by whoever uses others
}

func openNFTables(cfg nftsave.Config) (*nftables, error) {
	g, err := openGeneration()
	if err != nil {
		return nil, err
	}
	r, err := nftsave.Open(cfg)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	l, err := nftsave.OpenListener(cfg)
	if err != nil {
		return nil, errors.Join(err, r.Close(), g.Close())
	}
	return &nftables{generation: g, reader: r, others: l}, nil
}

// Close implements stamper.
func (n *nftables) Close() error {
	return errors.Join(n.others.Close(), n.reader.Close(), n.generation.Close())
}

// read implements tableReader. Whatever keeps it from reading, the programs may still be able to.
func (n *nftables) read(ctx context.Context, r Reading, emit func([]byte) error) error {
	now, err := n.mark(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if r.Began != nil {
		r.Began(now)
	}
	var stopped error
	err = n.reader.Read(ctx, n.request(&r), func(line []byte) error {
		stopped = emit(line)
		return stopped
	})
	if err == nil || stopped != nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnreadable, err)
}

func (n *nftables) request(r *Reading) nftsave.Request {
	q := nftsave.Request{Family: xt.Family(r.Family), Table: r.Table, Ours: r.Ours, Yield: n.yield}
	if r.Same != nil {
		q.Skip = func(chain string) bool {
			return n.ledger.untouched(writtenChain{r.Family, r.Table, chain}, r.Since) && r.Same(chain)
		}
	}
	return q
}

// yield waits while a Restore is under way.
func (n *nftables) yield(ctx context.Context) error {
	n.turn.RLock()
	defer n.turn.RUnlock()
	return ctx.Err()
}

// ended returns the stamp after a Restore that should have made a generation. A COMMIT that
// changes nothing makes none: then nobody has written only if the one before still stands.
func (n *nftables) ended(before Stamp, after uint32) Stamp {
	if now, err := n.stamp(); err == nil && int32(now.Generation-after) < 0 {
		return before
	}
	return Stamp{Generation: after}
}
