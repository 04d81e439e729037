package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/dataplane"
	"github.com/fairlead/fairlead/internal/delta"
)

// To read everything takes from a tenth of a second to some seconds at 10 000 Services, and the engine has changes to
// write. So who asks for a comparison reads on a goroutine of his own, and sums up what he reads. Mostly that is the sum of
// what we believe to be there, and all is well: to keep each of a quarter of a million objects and look it up would take as
// long again. Otherwise everything is read once more and compared, in parts, between which changes go in; the engine notes
// meanwhile what it writes.

// survey is one reading of the kernel beside the engine. It belongs to the engine's goroutine.
type survey struct {
	written map[dataplane.Key]struct{} // since it began: what was read of these may be old or new
	over    <-chan struct{}
}

// surveyPart is how many objects are compared between two turns: an eighth of a millisecond.
const surveyPart = 512

// tellSurveys notes what is about to be written.
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

// survey does one look beside the engine. An error that another try may not meet is one of those that Look knows.
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
		err := e.between(ctx, func() error { e.on(changed); return nil })
		return Audited{Objects: n, Took: took, Different: 1, Names: []string{rebuild.Error()}}, err
	}
	out := e.audited(n, took, drift)
	out.Compared = compared
	return out, err
}

// sumUp reads everything once, keeps nothing of it, and tells whether its sum is the right one: that of what we believe, or
// believed when the reading began, which a change that is written meanwhile mostly leaves it at.
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
	if err := believe(&before); err != nil { // nothing is read in vain
		return 0, false, err
	}
	all, err := e.total(ctx)
	if err == nil {
		err = believe(&after)
	}
	return all.Objects, all.Sum == before || all.Sum == after, err
}

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
		all = make(objects, 0, e.tr.Len()) // mostly as many are there
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

// objectSum is what an object adds to the sum of all. Where an element lies in a pool makes no difference to a comparison,
// and so none here. It is pure: any goroutine may call it.
func (e *Engine) objectSum(k dataplane.Key, value string) uint64 {
	if width := e.p.Driver.Width(k); width > 0 {
		return dataplane.PoolSum(k, value, width)
	}
	return dataplane.ObjectSum(k, value)
}

// compare finds what differs, apart from what was written meanwhile.
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
		if c == nil { // nothing is there
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
		switch {
		case len(drift) == 0:
			return nil
		case len(s.written) > 0: // it may be that our writes were in the way of the reading
			return errGaveWay
		}
		e.on(changed)
		return nil
	})
}

// between runs f on the engine's goroutine, between two turns.
func (e *Engine) between(ctx context.Context, f func() error) (err error) {
	if asked := e.Inspect(ctx, func(View) { err = f() }); asked != nil {
		return asked
	}
	return err
}
