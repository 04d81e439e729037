package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/model"
)

// GiveBack deletes the local routes of an earlier run that no connection needs, and returns how many. Before the first sync of Services no
// socket listens on these addresses. An older version had such routes to addresses that may be other hosts'; if one is the API server's, the
// agent would never receive a Service (k3s#2804).
func (d *Driver) GiveBack(ctx context.Context) (n int, err error) {
	if d.p.Routes == nil {
		return 0, nil
	}
	list, err := d.p.Routes.List()
	if err != nil {
		return 0, fmt.Errorf("remove local routes: %w", err)
	}
	var keys []dataplane.Key
	for _, a := range list {
		keys = append(keys, dataplane.Key{Kind: kindRoute, Family: model.FamilyOf(a), ID: a.String()})
	}
	unused, err := d.Drained(ctx, keys)
	if err != nil {
		return 0, fmt.Errorf("remove local routes: %w", err)
	}
	for _, k := range unused {
		if err := d.p.Routes.Delete(netip.MustParseAddr(k.ID)); err != nil {
			return n, fmt.Errorf("remove local routes: %w", err)
		}
		n++
	}
	return n, nil
}
