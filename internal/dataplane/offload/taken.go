package offload

import (
	"context"

	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// Counts are what the rules have counted since they were written last.
type Counts struct {
	// Taken are connections that were handed over. One that comes back, after half a minute without a packet, and is taken over
	// again counts again.
	Taken uint64
	// Excluded and Impossible are packets of connections that had enough of them and went on through the rules: those that the
	// exclusions name, and those that the kernel does not take, as at a connection's end or with a helper.
	Excluded, Impossible uint64
}

// ReadCounts reads the counters, of both families together.
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

// HasDevices reports whether a flowtable of an earlier run, or this one, has devices.
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
