package app

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/engine"
	"github.com/fairlead/fairlead/internal/inspect"
	"github.com/fairlead/fairlead/internal/model"
)

const (
	// lookLimit bounds the audit of one Service's objects.
	lookLimit = 3 * time.Second
	// lookTries is how often it is tried when the engine writes concurrently.
	lookTries = 3
)

// explanation returns the answer to one question, with an audit of the Service's objects in the data plane.
func (i *inspection) explanation(ctx context.Context, ask inspect.Question) (*inspect.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	var out inspect.Explanation
	var svc model.ServiceKey
	var objs inspect.Objects
	err := i.a.engine.Inspect(ctx, func(v engine.View) {
		out = inspect.Explain(ask, v)
		if svc = out.ServiceKey(); len(out.Keys) > 0 {
			objs = inspect.ObjectsOf(svc, v)
		}
	})
	if err == nil && len(objs.Written)+objs.Pending > 0 {
		out.Take(i.agreement(ctx, svc, objs))
	}
	return &out, err
}

// agreement compares a Service's objects with the data plane, on the caller's goroutine,
// concurrently with the engine. A difference may be an object that the engine has just
// written. Then the desired state has changed, too, and it is compared again. Where a
// read is expensive the driver returns its recorded evidence instead.
func (i *inspection) agreement(ctx context.Context, svc model.ServiceKey, objs inspect.Objects) *inspect.Agreement {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if d, can := i.a.driver.(dataplane.Recaller); can {
		if r, ok := d.Recall(ctx); ok {
			return inspect.Recall(r, len(objs.Written), objs.Pending, time.Now())
		}
	}
	for try := 1; ; try++ {
		list := objs.Sample()
		a := &inspect.Agreement{Compared: len(list), Pending: objs.Pending}
		if len(list) < len(objs.Written) {
			a.Of = len(objs.Written)
		}
		found := map[dataplane.Key]string{}
		err := i.a.driver.Compare(ctx, list, func(k dataplane.Key, is string) {
			found[k] = is
			a.Differs(i.a.driver.KeyString(k), is == "")
		})
		if err != nil {
			a.Err = err.Error()
			return a
		}
		if len(found) == 0 || try == lookTries {
			return a
		}
		var now inspect.Objects
		if err := i.a.engine.Inspect(ctx, func(v engine.View) { now = inspect.ObjectsOf(svc, v) }); err != nil {
			return a
		}
		wrote := false
		for k := range found {
			wrote = wrote || now.Written[k] != objs.Written[k]
		}
		if !wrote {
			return a
		}
		objs = now
	}
}
