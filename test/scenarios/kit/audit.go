package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/test/patience"
)

// Auditor is a Subject that can compare the actual state of the kernel with the desired state, as `fairlead audit --repair=false` does.
type Auditor interface {
	Audit(ctx context.Context) (*inspect.Audit, error)
}

var _ Auditor = (*Fairlead)(nil)

// Audit implements Auditor over the agent's socket.
func (f *Fairlead) Audit(ctx context.Context) (*inspect.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(explainLimit))
	defer cancel()
	var body []byte
	if err := f.setup.Lab.Node().Do(func() (err error) {
		body, err = control.Get(ctx, "/audit?repair=false")
		return err
	}); err != nil {
		return nil, fmt.Errorf("ask for an audit: %w", err)
	}
	a := &inspect.Audit{}
	return a, json.Unmarshal(body, a)
}

// audited waits at the end of a scenario until an audit reports no difference and reads no object one by one for that result. Objects that linger, or
// that the agent has just repaired, may differ for a while.
func (r *run) audited(ctx context.Context) error {
	asker, can := r.subject.(Auditor)
	if !can || r.halted {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*r.patience)
	defer cancel()
	for {
		err := agrees(asker.Audit(ctx))
		if err == nil || errors.Is(err, control.ErrNoAgent) { // the scenario itself stopped the agent
			return nil
		}
		if sleep(ctx, time.Second) != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
}

func agrees(a *inspect.Audit, err error) error {
	if err == nil && (a.Objects == 0 || a.Compared+a.Missing+a.Different+a.Foreign > 0) {
		err = fmt.Errorf("an audit of %d objects compared %d: %d missing, %d different, %d foreign: %s",
			a.Objects, a.Compared, a.Missing, a.Different, a.Foreign, strings.Join(a.Names, ", "))
	}
	return err
}
