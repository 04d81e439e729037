package nftables

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Remembered is the size of the session affinity state in the kernel.
type Remembered struct {
	Clients uint64 // clients of all Service ports
	Full    uint64 // Service ports whose map of clients is full
}

// Occupancy counts remembered clients, for metrics. It has a Kernel of its own, so that
// a count does not delay the engine. Its methods may be called from any goroutine.
type Occupancy struct {
	mu   sync.Mutex
	k    nft.Kernel
	last Remembered
	next time.Time // when the cached count becomes stale
}

// restFactor is how long a count stays valid, as a multiple of the time that it took.
// Kernels before 6.16 do not report how many elements a set has, and reading 200 000
// elements takes 100 ms.
const restFactor = 100

// NewOccupancy returns an Occupancy that reads with k. Nothing else may use k.
func NewOccupancy(k nft.Kernel) *Occupancy { return &Occupancy{k: k} }

// Read counts the clients, or returns the cached count if it is not stale.
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

// count returns how many elements a set has.
func (o *Occupancy) count(ctx context.Context, s *nft.Set) (uint32, error) {
	if s.Counted {
		return s.Count, nil
	}
	n := uint32(0)
	err := o.k.Elements(ctx, s.Ref, func(*nft.Element) error { n++; return nil })
	return n, err
}
