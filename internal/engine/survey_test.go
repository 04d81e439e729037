package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/internal/dataplane"
)

// inOrder returns what is in a kernel always in the same order.
func inOrder(kernel map[dataplane.Key]string) (all objects) {
	for _, k := range slices.SortedFunc(maps.Keys(kernel), func(a, b dataplane.Key) int { return strings.Compare(a.String(), b.String()) }) {
		all = append(all, dataplane.Object{Key: k, Value: kernel[k]})
	}
	return all
}

func digestOf(value string) string {
	d := dataplane.NewDigester()
	d.Add([]byte(value))
	return d.Digest()
}

// beside runs f concurrently with an engine that has built one Service.
func beside(t *testing.T, f func(t *testing.T, b *bench, d *memDriver)) {
	synctest.Test(t, func(t *testing.T) {
		d := newMemDriver()
		b := newBench(d, nil)
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1), synced)
			synctest.Wait()
			f(t, b, d)
		})
	})
}

// TestSurveyHoldsNothingUp: a change that comes in the midst of a look is in the kernel at once, and the look goes on: it
// is not begun anew, and takes the change for nobody's doing.
func TestSurveyHoldsNothingUp(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		d.loadTakes = time.Second
		loads := d.count().loads
		told := make(chan Audited, 1)
		go func() {
			a, err := b.Look(t.Context())
			if err != nil {
				t.Error(err)
			}
			told <- a
		}()
		for i := 2; i < 5; i++ {
			time.Sleep(200 * time.Millisecond) // virtual time (synctest): before and after the reading sees anything
			if took := b.takes(i); took > 10*time.Millisecond {
				t.Errorf("change %d waited %v for a look", i, took)
			}
		}
		a := <-told
		if n := d.count().loads - loads; n != 0 || d.count().surveys > 2 {
			t.Errorf("%d loads and %d surveys for one look", n, d.count().surveys)
		}
		if a.Objects == 0 || a.Missing+a.Different+a.Foreign != 0 {
			t.Errorf("%+v", a)
		}
	})
}

// TestSurveyFindsWhatDiffers as often as it is called, and repairs nothing, and neither does the next change. An audit does.
func TestSurveyFindsWhatDiffers(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		added := key(kindVerdict, "10.96.9.9:80/TCP")
		d.mu.Lock() // no alarm is raised
		d.kernel[vip(1)], d.kernel[added] = "drop", "drop"
		d.mu.Unlock()
		for range 2 {
			a, err := b.Look(t.Context())
			if a.Compared != a.Objects {
				t.Errorf("%d of %d objects were compared", a.Compared, a.Objects)
			}
			slices.Sort(a.Names)
			want := []string{"different: " + vip(1).String(), "foreign: " + added.String()}
			if err != nil || a.Different != 1 || a.Foreign != 1 || a.Missing != 0 || !slices.Equal(a.Names, want) {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		b.put(svcEvent(2, 80))
		synctest.Wait()
		if is := d.snapshot(); is[vip(1)] != "drop" || is[added] == "" || is[vip(2)] == "" {
			t.Errorf("after a change: %v", is)
		}
		if _, err := b.Audit(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if is := d.snapshot(); is[vip(1)] == "drop" || is[added] != "" {
			t.Errorf("after an audit: %v", is)
		}
	})
}

// TestSurveyLooksNothingUp: if the kernel is in sync, one sum is enough, also after a change and after a repair.
func TestSurveyLooksNothingUp(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		for i := 2; i < 4; i++ {
			a, err := b.Look(t.Context())
			if err != nil || a.Objects == 0 || a.Missing+a.Different+a.Foreign+a.Compared > 0 {
				t.Fatalf("%+v, %v", a, err)
			}
			d.mu.Lock() // no alarm is raised
			delete(d.kernel, vip(1))
			d.mu.Unlock()
			if _, err := b.Audit(t.Context()); err != nil { // this puts it back
				t.Fatal(err)
			}
			b.put(svcEvent(i, 80))
			synctest.Wait()
		}
	})
}

// summing is a driver that sums up by itself.
type summing struct {
	*memDriver
	objectSum func(dataplane.Key, string) uint64
	err       error
}

func (s *summing) Sum(context.Context) (all dataplane.Total, err error) {
	for k, v := range s.snapshot() {
		all.Objects++
		all.Sum += s.objectSum(k, v)
	}
	return all, s.err
}

// TestSurveyOfASummer: objects are reported only where the sum is another one.
func TestSurveyOfASummer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &summing{memDriver: newMemDriver()}
		b := newBench(d.memDriver, func(p *Params) { p.Driver = d })
		d.objectSum = b.objectSum
		run(t, b, func() {
			b.put(svcEvent(1, 80), sliceEvent(1, 1, 2, 3), synced)
			synctest.Wait()
			all := len(d.snapshot())
			look := func(missing, surveys int) {
				t.Helper()
				a, err := b.Look(t.Context())
				if err != nil || a.Objects != all-missing || a.Missing != missing || a.Different+a.Foreign > 0 || d.count().surveys != surveys {
					t.Errorf("%+v, %v, %d surveys; want %d of %d missing and %d surveys", a, err, d.count().surveys, missing, all, surveys)
				}
			}
			look(0, 0)
			d.mu.Lock() // no alarm is raised
			delete(d.kernel, vip(1))
			d.mu.Unlock()
			look(1, 1)
			d.err = errors.New("no answer")
			if _, err := b.Look(t.Context()); !errors.Is(err, d.err) {
				t.Errorf("%v, want %v", err, d.err)
			}
			d.err = &dataplane.RebuildError{Why: "too old"}
			if a, err := b.Look(t.Context()); err != nil || a.Objects != all-1 || a.Different != 1 {
				t.Errorf("what must be made anew: %+v, %v", a, err)
			}
		})
	})
}

// TestSurveyBesideAChange: whether a change comes before or after it is read what it changes, nothing is looked up.
func TestSurveyBesideAChange(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		d.loadTakes = time.Second // half of it before anything is seen
		for i, comes := range []time.Duration{200 * time.Millisecond, 700 * time.Millisecond} {
			surveys := d.count().surveys
			time.AfterFunc(comes, func() { b.put(svcEvent(2+i, 80)) })
			a, err := b.Look(t.Context())
			if n := d.count().surveys - surveys; err != nil || a.Objects == 0 || a.Missing+a.Different+a.Foreign+a.Compared > 0 || n != 1 {
				t.Errorf("a change after %v: %+v, %v, %d surveys", comes, a, err, n)
			}
			if d.snapshot()[vip(2+i)] == "" {
				t.Errorf("the change after %v is not in the kernel", comes)
			}
		}
	})
}

// TestSurveyOfPools: other slots of the same elements need no lookup, other elements count as drift.
func TestSurveyOfPools(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		b.put(sliceEvent(1, 1, 2, 3))
		synctest.Wait()
		last := ""
		d.during = func(seen map[dataplane.Key]string) {
			for k, v := range seen {
				if w := d.Width(k); w > 0 {
					seen[k] = v[2*w:] + strings.Repeat("\x00", w) + v[w:2*w] + v[:w] + last
				}
			}
		}
		if a, err := b.Look(t.Context()); err != nil || a.Objects == 0 || a.Missing+a.Different+a.Foreign+a.Compared > 0 {
			t.Errorf("%+v, %v", a, err)
		}
		last = "\x0a\x80\x00\x01" // a second time
		if a, err := b.Look(t.Context()); err != nil || a.Different != 1 || a.Missing+a.Foreign > 0 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// TestSurveyByDigests: the result is the same if the driver returns digests for values.
func TestSurveyByDigests(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		d.digests = true
		if a, err := b.Look(t.Context()); err != nil || a.Objects == 0 || a.Missing+a.Different+a.Foreign+a.Compared > 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		d.mu.Lock() // no alarm is raised
		d.kernel[vip(1)] = "drop"
		d.mu.Unlock()
		if a, err := b.Look(t.Context()); err != nil || a.Different != 1 || a.Missing+a.Foreign > 0 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}

// TestSurveyBeforeAnythingIsRead calls nothing foreign that it has nothing to compare with.
func TestSurveyBeforeAnythingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newMemDriver()
		d.kernel[vip(1)] = "drop"
		b := newBench(d, nil)
		run(t, b, func() {
			ctx, cancel := context.WithTimeout(t.Context(), auditPause*9/2) // virtual time (synctest): between two tries
			defer cancel()
			if a, err := b.Look(ctx); !errors.Is(err, errNothingRead) {
				t.Errorf("%+v, %v", a, err)
			}
		})
	})
}

// TestSurveyThatAWriteDisturbed: an object that a read misses next to a write of the agent is not reported as missing, it is read again.
func TestSurveyThatAWriteDisturbed(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		d.during = func(seen map[dataplane.Key]string) {
			d.during = nil
			delete(seen, vip(1))
			b.put(svcEvent(2, 80))
			time.Sleep(time.Second) // virtual time (synctest)
		}
		a, err := b.Look(t.Context())
		if err != nil || a.Missing+a.Different+a.Foreign != 0 || d.count().surveys != 2 {
			t.Fatalf("%+v after %d surveys, %v", a, d.count().surveys, err)
		}
	})
}

// TestSurveyFindsWhatIsMissing, where nothing else differs.
func TestSurveyFindsWhatIsMissing(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		d.mu.Lock() // no alarm is raised
		delete(d.kernel, vip(1))
		d.mu.Unlock()
		if a, err := b.Look(t.Context()); err != nil || a.Missing != 1 || a.Different+a.Foreign != 0 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}

// TestManySurveysAtOnce answer all, and none takes for missing what another one has met.
func TestManySurveysAtOnce(t *testing.T) {
	beside(t, func(t *testing.T, b *bench, d *memDriver) {
		const many = 20
		d.mu.Lock() // no alarm is raised
		delete(d.kernel, vip(1))
		d.mu.Unlock()
		told := make(chan error, many)
		for range many {
			go func() {
				a, err := b.Look(t.Context())
				if err == nil && (a.Objects == 0 || a.Missing != 1 || a.Different+a.Foreign != 0) {
					err = fmt.Errorf("%+v", a)
				}
				told <- err
			}()
		}
		for range many {
			if err := <-told; err != nil {
				t.Error(err)
			}
		}
		b.put(svcEvent(2, 80))
		synctest.Wait()
		if n := len(b.surveys); n != 0 {
			t.Errorf("%d surveys are still told of writes", n)
		}
	})
}

// asking is the context of a caller that pauses before one of its calls to the engine.
type asking struct {
	context.Context
	questions, pauseAt int
	pause              func()
}

// Done is called by each question once.
func (a *asking) Done() <-chan struct{} {
	if a.questions++; a.questions == a.pauseAt {
		a.pause()
	}
	return a.Context.Done()
}

// TestSpoiledComparison: when another comparison begins between two parts of one, or before its end, the first is given up.
// It meets no keys any more, which the other would then take for missing.
func TestSpoiledComparison(t *testing.T) {
	for name, pauseAt := range map[string]int{"between two parts": 2, "before its end": 3} {
		t.Run(name, func(t *testing.T) {
			beside(t, func(t *testing.T, b *bench, d *memDriver) {
				for i := range surveyPart * 3 / 4 { // of two objects each
					b.put(svcEvent(i, 80), sliceEvent(i, 1))
				}
				synctest.Wait()
				all := inOrder(d.snapshot())
				if len(all) <= surveyPart || len(all) > 2*surveyPart {
					t.Fatalf("%d objects are not two parts", len(all))
				}
				lessOne := slices.Clone(all[1:]) // one is missing, so it looks at all that it has not met
				slices.Reverse(lessOne)
				midway, first := make(chan struct{}), make(chan struct{})
				second := make(chan error, 1)
				ctx := &asking{Context: t.Context(), pauseAt: pauseAt, pause: func() {
					go func() {
						drift, err := b.compare(&asking{Context: t.Context(), pauseAt: 2, pause: func() { close(midway); <-first }}, &survey{}, lessOne)
						if err == nil && len(drift) != 1 {
							err = fmt.Errorf("it finds %d differences", len(drift))
						}
						second <- err
					}()
					<-midway
				}}
				if drift, err := b.compare(ctx, &survey{}, all); !errors.Is(err, errGaveWay) {
					t.Errorf("the first is not given up: %d differences, %v", len(drift), err)
				}
				close(first)
				if err := <-second; err != nil {
					t.Errorf("the second: %v", err)
				}
			})
		})
	}
}
