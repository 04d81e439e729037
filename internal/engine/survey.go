package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
)

// A full read of the kernel takes from a tenth of a second to some seconds at 10 000 Services, and the engine has changes
// to write. So a caller that requests a comparison reads on its own goroutine, and computes the sum of what it reads.
// Usually that is the sum of the tracker's actual state, and the kernel is in sync. Keeping a quarter of a million objects
// with a lookup for each would double the time. If the sums differ, everything is read a second time and compared in
// parts. The engine applies changes between the parts, and records the keys that it writes.

// survey is one read of the kernel that runs concurrently with the engine. The struct is owned by the engine's goroutine.
type survey struct {
	written map[dataplane.Key]struct{} // since the start of the read: the value read of these keys may be stale or current
	over    <-chan struct{}
}

// surveyPart is how many objects are compared between two syncs: an eighth of a millisecond.
const surveyPart = 512

// tellSurveys records the keys that are about to be written in every running survey.
func (e *Engine) tellSurveys(list []dataplane.Op) {
	if len(e.surveys) == 0 {
		return
	}
	e.surveys = slices.DeleteFunc(e.surveys, func(s *survey) bool {
		select {
		case <-s.over:
			return true
		default:
			return false
		}
	})
	for _, s := range e.surveys {
		for i := range list {
			s.written[list[i].Key] = struct{}{}
		}
	}
}

// survey does one read and comparison concurrently with the engine. Errors that Look handles may succeed on a retry.
func (e *Engine) survey(ctx context.Context) (Audited, error) {
	began := e.p.Now()
	n, same, err := e.sumUp(ctx)
	var drift []Drifted
	compared := 0
	if err == nil && !same {
		n, drift, err = e.lookUp(ctx)
		compared = n
	}
	took := e.p.Now().Sub(began)
	if rebuild := (*dataplane.RebuildError)(nil); errors.As(err, &rebuild) {
		return Audited{Objects: n, Took: took, Different: 1, Names: []string{rebuild.Error()}}, nil
	}
	out := e.audited(n, took, drift)
	out.Compared = compared
	return out, err
}

// sumUp reads everything once, keeps none of it, and reports whether its sum is that of the actual state, at the start or at
// the end of the read. A change that is written during the read usually leaves the result at one of the two.
func (e *Engine) sumUp(ctx context.Context) (n int, same bool, err error) {
	var before, after uint64
	believe := func(sum *uint64) error {
		return e.between(ctx, func() error {
			if !e.comparable() {
				return errNothingRead
			}
			*sum = e.tr.Sum()
			return nil
		})
	}
	if err := believe(&before); err != nil { // avoids a useless read
		return 0, false, err
	}
	all, err := e.total(ctx)
	if err == nil {
		err = believe(&after)
	}
	return all.Objects, all.Sum == before || all.Sum == after, err
}

// total reads all objects and returns their number and sum. It runs on the caller's goroutine.
func (e *Engine) total(ctx context.Context) (all dataplane.Total, err error) {
	if s, can := e.p.Driver.(dataplane.Summer); can {
		return s.Sum(ctx)
	}
	err = e.p.Driver.Survey(ctx, func(k dataplane.Key, v string) {
		all.Objects++
		all.Sum += e.objectSum(k, v)
	})
	return all, err
}

// lookUp reads everything and compares each object.
func (e *Engine) lookUp(ctx context.Context) (n int, drift []Drifted, err error) {
	ctx, over := context.WithCancel(ctx)
	defer over()
	s := &survey{written: map[dataplane.Key]struct{}{}, over: ctx.Done()}
	var all objects
	err = e.between(ctx, func() error {
		e.surveys = append(e.surveys, s)
		all = make(objects, 0, e.tr.Len()) // the usual number of objects
		return nil
	})
	if err == nil {
		err = e.p.Driver.Survey(ctx, func(k dataplane.Key, v string) { all = append(all, dataplane.Object{Key: k, Value: v}) })
	}
	if err == nil {
		drift, err = e.compare(ctx, s, all)
	}
	return len(all), drift, err
}

// objectSum returns what an object adds to the sum of all. The slot of an element within its pool does not matter to a
// comparison, so it does not matter here. The function is pure: any goroutine may call it.
func (e *Engine) objectSum(k dataplane.Key, value string) uint64 {
	if width := e.p.Driver.Width(k); width > 0 {
		return dataplane.PoolSum(k, value, width)
	}
	return dataplane.ObjectSum(k, value)
}

// compare returns the drift, except of keys that the engine wrote during the survey.
func (e *Engine) compare(ctx context.Context, s *survey, all objects) (drift []Drifted, err error) {
	var c *delta.Comparison[dataplane.Key, owner]
	for part := range slices.Chunk(all, surveyPart) {
		err := e.between(ctx, func() error {
			if c == nil {
				c = e.tr.Compare()
			}
			if c.Spoiled() {
				return errGaveWay
			}
			for i := range part {
				c.Found(part[i].Key, part[i].Value)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return drift, e.between(ctx, func() error {
		if c == nil { // the kernel holds no objects
			c = e.tr.Compare()
		}
		if c.Spoiled() || !e.comparable() {
			return errGaveWay
		}
		for _, d := range c.End() {
			if _, ours := s.written[d.Key]; !ours {
				drift = append(drift, drifted(d))
			}
		}
		if len(drift) > 0 && len(s.written) > 0 { // the engine's own writes may have disturbed the read
			return errGaveWay
		}
		return nil
	})
}

// between runs f on the engine's goroutine, between two syncs.
func (e *Engine) between(ctx context.Context, f func() error) (err error) {
	if asked := e.Inspect(ctx, func(View) { err = f() }); asked != nil {
		return asked
	}
	return err
}
