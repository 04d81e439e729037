package offload

import (
	"context"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Taken is how many connections the rules have handed over since they were written last. One that comes back, after
// half a minute without a packet, and is taken over again counts again.
func Taken(ctx context.Context, k nft.Kernel) (n uint64, err error) {
	for _, f := range families() {
		rules, err := k.Rules(ctx, tableRef(f))
		if err != nil {
			return 0, err
		}
		for i := range rules {
			n += rules[i].Counted()
		}
	}
	return n, nil
}
