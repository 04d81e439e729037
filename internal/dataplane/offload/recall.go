package offload

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
)

var _ dataplane.Recaller = (*Driver)(nil)

// Recall implements dataplane.Recaller, if the wrapped driver does. If that driver knows from the generation of nf_tables that no other
// program has written, this is true for the tables of this package too. If its Blind is not "", it has no evidence about them.
func (d *Driver) Recall(ctx context.Context) (dataplane.Recall, bool) {
	beside, can := d.Driver.(dataplane.Recaller)
	if !can {
		return dataplane.Recall{}, false
	}
	r, ok := beside.Recall(ctx)
	if ok && r.Blind != "" {
		r.Blind += "; the offload rules were not compared"
	}
	return r, ok
}
