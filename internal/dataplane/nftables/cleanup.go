package nftables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/model"
)

// Cleanup implements dataplane.Driver. It deletes the agent's tables in both families,
// independent of the Driver's state, families and capabilities. A table of the same
// name that another program owns is kept, and the error names it.
func (d *Driver) Cleanup(ctx context.Context) error {
	tables, err := d.k.Tables(ctx)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT):
		return nil // a kernel without nf_tables has no table of the agent
	case err != nil:
		return fmt.Errorf("clean up: %w", err)
	}
	var problems []error
	d.batch.Reset()
	for _, f := range bothFamilies {
		for i := range tables {
			if tables[i].Ref != tableRef(f) {
				continue
			}
			if _, err := layoutOf(&tables[i]); err != nil {
				problems = append(problems, err)
				continue
			}
			if err := nft.EmptyHooks(ctx, d.k, tables[i].Ref); err != nil {
				return fmt.Errorf("clean up: %w", err)
			}
			d.delTable(tables[i].Ref)
		}
	}
	if d.batch.Len() > 0 {
		g, err := d.k.Commit(ctx, &d.batch)
		if err != nil {
			return fmt.Errorf("clean up: delete Fairlead's tables: %w", errors.Join(append(problems, err)...))
		}
		d.seen.Compared(g)
	}
	return errors.Join(problems...)
}

// delTable deletes an existing table. The message before the deletion changes nothing.
// It must be the first of the batch, because the kernel echoes all effects of the first
// message: the deletion of a table with ten thousand maps would fill the socket's
// buffer (Conn.Commit).
func (d *Driver) delTable(t nft.TableRef) {
	d.batch.NewTable(t, nil)
	d.batch.DelTable(t)
}

// IsOurs reports whether a Driver created the table.
func IsOurs(t *nft.Table) bool {
	if t.Ref != tableRef(model.IPv4) && t.Ref != tableRef(model.IPv6) {
		return false
	}
	_, err := layoutOf(t)
	return err == nil
}
