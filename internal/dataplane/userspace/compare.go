package userspace

import (
	"context"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Compare implements dataplane.Driver. A socket that waits for a port that somebody else
// has is not there: connections to it go to somebody else.
func (d *Driver) Compare(ctx context.Context, want []dataplane.Object, differs func(dataplane.Key, string)) error {
	inKernel, err := d.inKernel() // before anything of ours is locked
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range want {
		o := &want[i]
		found := ""
		switch o.Key.Kind {
		case kindWhere:
			found = d.where[o.Key.Family]
		case kindRoute, kindReturn:
			if inKernel[o.Key] {
				found = present
			}
		case kindTarget:
			if t := d.targets[o.Key.ID]; t != nil {
				found = t.value
			}
		case kindSocket:
			if s := d.sockets[o.Key.ID]; s != nil && s.open != nil {
				found = present
			}
		}
		if found != o.Value {
			differs(o.Key, found)
		}
	}
	return ctx.Err()
}

// inKernel reads the routes and the rules for answers.
func (d *Driver) inKernel() (map[dataplane.Key]bool, error) {
	there, err := d.listed()
	out := map[dataplane.Key]bool{}
	there.each(func(k dataplane.Key, _ string) { out[k] = true })
	return out, err
}
