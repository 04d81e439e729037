package iptables

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/internal/kernel/iptables/nftsave"
	"github.com/fairlead/fairlead/internal/kernel/iptables/xt"
)

// nftables reads nf_tables without the programs, and returns its generation.
type nftables struct {
	*generation
	reader *nftsave.Reader
	// turn is held by a Restore for its whole run, and by a read for one chain at a time: a
	// write takes precedence, and has the processors to itself.
	turn   sync.RWMutex
	ledger ledger
	// others listens to other programs' commits from the first read on, except during a Restore.
	others  *nftsave.Listener
	hearing sync.Mutex // guards others
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

// read implements tableReader. It returns each failure as ErrUnreadable: the programs may still be able to read.
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

// yield waits until no Restore is in progress.
func (n *nftables) yield(ctx context.Context) error {
	n.turn.RLock()
	defer n.turn.RUnlock()
	return ctx.Err()
}

// ended returns the stamp after a Restore that should have produced a generation. A COMMIT
// that changes nothing produces none: then the stamp of before is returned, which is present
// unless another program wrote.
func (n *nftables) ended(before Stamp, after uint32) Stamp {
	if now, err := n.stamp(); err == nil && int32(now.Generation-after) < 0 {
		return before
	}
	return Stamp{Generation: after}
}
