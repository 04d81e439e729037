package ipvs

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Survey implements dataplane.Driver. What we write to IPVS meanwhile is no transaction, and makes it miss nothing else.
func (d *Driver) Survey(ctx context.Context, emit func(dataplane.Key, string)) error {
	r, done, err := d.beside(emit)
	if err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	defer done()
	r.unsummed = true
	if _, err := r.everything(ctx); err != nil {
		return err
	}
	return r.rebuild()
}

// beside gives who reads by other sockets than the engine does; done must be called.
func (d *Driver) beside(emit func(dataplane.Key, string)) (_ *reader, done func(), err error) {
	if d.p.Beside == (Sockets{}) {
		return nil, nil, fmt.Errorf("%w: no sockets to read with", dataplane.ErrUnsupported)
	}
	d.surveying.Lock()
	r := d.reader(emit)
	r.from = d.p.Beside
	return &r, d.surveying.Unlock, nil
}
