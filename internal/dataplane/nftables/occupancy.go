package nftables

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Remembered is how many clients session affinity has stored in the kernel.
type Remembered struct {
	Clients uint64 // of all Service ports
	Full    uint64 // Service ports whose map of clients is full
}

// Occupancy counts remembered clients, for metrics. It has its own Kernel, so that
// no other caller waits for a count. It may be used from any goroutine.
type Occupancy struct {
	mu   sync.Mutex
	k    nft.Kernel
	last Remembered
	next time.Time // when to count again
}

// restFactor is how many times as long as the last count took Read waits before it counts
// again. Kernels before 6.16 do not report the number of elements of a set, and 200 000 take 100 ms to read.
const restFactor = 100

// NewOccupancy returns an Occupancy on a Kernel that has no other user.
func NewOccupancy(k nft.Kernel) *Occupancy { return &Occupancy{k: k} }

// Read counts, or returns the last count if it is recent enough.
func (o *Occupancy) Read(ctx context.Context) (Remembered, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	start := time.Now()
	if start.Before(o.next) {
		return o.last, nil
	}
	var sum Remembered
	for _, f := range bothFamilies {
		sets, err := o.k.Sets(ctx, tableRef(f))
		if err != nil {
			return Remembered{}, fmt.Errorf("count session affinity clients: %w", err)
		}
		for i := range sets {
			if !strings.HasPrefix(sets[i].Ref.Name, clientsPrefix) {
				continue
			}
			n, err := o.count(ctx, &sets[i])
			if err != nil {
				return Remembered{}, fmt.Errorf("count session affinity clients: %w", err)
			}
			sum.Clients += uint64(n)
			if sets[i].Size > 0 && n >= sets[i].Size {
				sum.Full++
			}
		}
	}
	o.last, o.next = sum, start.Add(restFactor*time.Since(start))
	return sum, nil
}

func (o *Occupancy) count(ctx context.Context, s *nft.Set) (uint32, error) {
	if s.Counted {
		return s.Count, nil
	}
	n := uint32(0)
	err := o.k.Elements(ctx, s.Ref, func(*nft.Element) error { n++; return nil })
	return n, err
}
