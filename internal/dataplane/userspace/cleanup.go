package userspace

import (
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// Cleanup implements dataplane.Driver. It closes every socket and deletes every route of this
// mode, also those of a process that was killed.
func (d *Driver) Cleanup(ctx context.Context) error {
	var ops []dataplane.Op
	if err := d.Load(ctx, func(k dataplane.Key, value string) { ops = append(ops, dataplane.Op{Key: k, Have: value}) }); err != nil {
		return err
	}
	slices.SortFunc(ops, func(a, b dataplane.Op) int { return int(b.Key.Kind) - int(a.Key.Kind) })
	_, err := d.Apply(ctx, dataplane.Batch{Ops: ops})
	return err
}

// CleanRoutes deletes the routes that an agent of this mode has left, and returns how many.
func CleanRoutes(r Routes) (int, error) {
	list, err := r.List()
	problems := []error{err}
	for _, a := range list {
		problems = append(problems, r.Delete(a))
	}
	return len(list), errors.Join(problems...)
}
