package offload

import (
	"context"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Counts are the counters of the rules, since the rules were last written.
type Counts struct {
	// Taken is the number of connections that were offloaded. A connection that leaves the flowtable after half a minute without a
	// packet and is offloaded again counts again.
	Taken uint64
	// Excluded and Impossible are the numbers of packets of connections above the threshold that still passed through the rules:
	// of excluded connections, and of those that the kernel does not offload, as at a connection's end or with a helper.
	Excluded, Impossible uint64
}

// ReadCounts returns the sum of the counters of both families.
func ReadCounts(ctx context.Context, k nft.Kernel) (c Counts, err error) {
	for _, f := range families() {
		into := map[string]*uint64{}
		for i, r := range handingOver(f) {
			text, _ := commentOf(r.UserData)
			into[text] = [...]*uint64{&c.Excluded, &c.Excluded, &c.Excluded, &c.Taken, &c.Impossible}[i]
		}
		rules, err := k.Rules(ctx, tableRef(f))
		if err != nil {
			return Counts{}, err
		}
		for i := range rules {
			text, _ := commentOf(rules[i].UserData)
			if n := into[text]; n != nil {
				*n += rules[i].Counted()
			}
		}
	}
	return c, nil
}

// HasDevices reports whether a flowtable of this package, of this process or an earlier one, has devices.
func HasDevices(ctx context.Context, list func(context.Context, nft.TableRef) ([]nft.Flowtable, error)) bool {
	for _, f := range families() {
		tables, err := list(ctx, tableRef(f))
		for i := range tables {
			if err == nil && tables[i].Ref.Name == flowtable && len(tables[i].Devices) > 0 {
				return true
			}
		}
	}
	return false
}
