package offload

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
)

var _ dataplane.Recaller = (*Driver)(nil)

// Recall implements dataplane.Recaller, if the driver beside does. Where that knows from the generation of nf_tables that nobody
// has written, it holds for our tables too; where it is blind for something, it knows nothing of them.
func (d *Driver) Recall(ctx context.Context) (dataplane.Recall, bool) {
	beside, can := d.Driver.(dataplane.Recaller)
	if !can {
		return dataplane.Recall{}, false
	}
	r, ok := beside.Recall(ctx)
	if ok && r.Blind != "" {
		r.Blind += "; what accelerates its connections was not looked at"
	}
	return r, ok
}
