package ipvs

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Survey implements dataplane.Driver. The engine's concurrent writes to IPVS are not transactions, and cause it to miss no other objects.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	_, err := d.survey(ctx, emit)
	return err
}

var _ dataplane.Summer = (*Driver)(nil)

// Sum implements dataplane.Summer. It reads as Survey does, but makes no names of what it reads and stores nothing.
func (d *Driver) Sum(ctx context.Context) (dataplane.Total, error) { return d.survey(ctx, nil) }

func (d *Driver) survey(ctx context.Context, emit func(dataplane.Key, string)) (dataplane.Total, error) {
	r, done, err := d.beside(emit)
	if err != nil {
		return dataplane.Total{}, fmt.Errorf("survey: %w", err)
	}
	defer done()
	if _, err := r.everything(ctx); err != nil {
		return r.total, err
	}
	return r.total, r.rebuild()
}

// beside returns a reader on other sockets than the engine's. The caller must call done.
func (d *Driver) beside(emit func(dataplane.Key, string)) (_ *reader, done func(), err error) {
	if d.p.Beside == (Sockets{}) {
		return nil, nil, fmt.Errorf("%w: no netlink sockets", dataplane.ErrUnsupported)
	}
	d.surveying.Lock()
	r := d.reader(emit)
	r.from, r.rest = d.p.Beside, &d.rest
	return &r, d.surveying.Unlock, nil
}
