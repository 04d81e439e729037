package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/netlab"
	"github.com/fairlead/fairlead/test/patience"
)

// Config selects the variants to run and configures the run.
type Config struct {
	Scenarios []*Scenario
	Modes     []string
	// Run selects variants by their full names; nil selects all.
	Run *regexp.Regexp
	// Part and Parts divide the variants over several machines: this one runs each whose index is Part modulo Parts. Parts 0 runs all.
	Part, Parts int
	// Only holds the full names of the variants to run, each with its position in the order; nil selects all.
	Only map[string]int
	// OneVariant runs one variant of each scenario in each mode: the first in the first mode, the second in the second, and so on.
	OneVariant bool
	// Record receives each result when it is complete; may be nil.
	Record *Record
	// NewSubject creates the subject for one lab.
	NewSubject func() Subject
	// SubjectName is the name that `not NAME:` headers use.
	SubjectName string
	// Labs is the number of concurrent labs; 0 means 4: a scenario spends most of its time waiting.
	Labs int
	// RestartBetweenSteps restarts the agent between any two steps, with SIGKILL and SIGTERM alternately.
	RestartBetweenSteps bool
	// Patience is how long an expectation is retried; 0 means a minute.
	Patience time.Duration
	// Done is called after each variant, never concurrently; may be nil.
	Done func(Result)
}

// Result is one cell of the matrix.
type Result struct {
	Variant       Variant
	Mode          string
	NotApplicable string // the reason, or empty
	Err           error
	Took          time.Duration
	Commit        string // the commit of the run, if the result comes from a record
}

// Passed reports whether the variant ran and all expectations held.
func (r Result) Passed() bool { return r.Err == nil && r.NotApplicable == "" }

type job struct {
	index   int
	variant Variant
	mode    string
}

// Run runs every selected variant in every mode, in Config.Labs concurrent labs. It returns the results in the order of the scenarios.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	if cfg.Labs == 0 {
		cfg.Labs = 4
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience.Of(pollFor)
	}
	jobs := cfg.jobs()
	if len(jobs) == 0 {
		return nil, errors.New("run scenarios: none selected")
	}
	queue := make(chan job)
	results := make([]Result, len(jobs))
	var report sync.Mutex
	errs := make([]error, cfg.Labs)
	var unrecorded error
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range cfg.Labs {
		wg.Go(func() {
			errs[i] = cfg.work(ctx, queue, func(j job, res Result) {
				report.Lock()
				defer report.Unlock()
				results[j.index] = res
				if cfg.Record != nil {
					unrecorded = errors.Join(unrecorded, cfg.Record.add(res))
				}
				if cfg.Done != nil {
					cfg.Done(res)
				}
			})
			if errs[i] != nil {
				cancel() // a worker without a lab must not block the queue
			}
		})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(cfg.Only[a.variant.Name()], cfg.Only[b.variant.Name()]) })
	err := feed(ctx, queue, jobs)
	wg.Wait()
	return results, errors.Join(append(errs, err, unrecorded)...)
}

// jobs returns the selected variants, each in every mode.
func (cfg Config) jobs() (out []job) {
	selected := 0
	for m, mode := range cfg.Modes {
		for n, s := range cfg.Scenarios {
			variants := s.Variants()
			if cfg.OneVariant {
				at := (n + m) % len(variants)
				variants = variants[at : at+1]
			}
			for _, v := range variants {
				if cfg.Run != nil && !cfg.Run.MatchString(v.Name()) || cfg.Only != nil && cfg.Only[v.Name()] == 0 {
					continue
				}
				if cfg.Parts == 0 || selected%cfg.Parts == cfg.Part {
					out = append(out, job{len(out), v, mode})
				}
				selected++
			}
		}
	}
	return out
}

func feed(ctx context.Context, queue chan<- job, jobs []job) error {
	defer close(queue)
	for _, j := range jobs {
		select {
		case queue <- j:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// work runs variants in one lab with one subject until the queue is empty.
func (cfg Config) work(ctx context.Context, queue <-chan job, report func(job, Result)) (err error) {
	lab, err := netlab.New(ctx, netlab.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	subject := cfg.NewSubject()
	if s, ok := subject.(Settler); ok {
		if err := s.Settle(ctx, lab); err != nil {
			return err
		}
		defer s.Leave()
	}
	for j := range queue {
		res := Result{Variant: j.variant, Mode: j.mode, NotApplicable: cmp.Or(unserved(j.mode, j.variant), j.variant.Scenario.NotApplicable(j.mode, cfg.SubjectName))}
		if res.NotApplicable == "" {
			start := time.Now()
			res.Err = cfg.one(ctx, lab, subject, j)
			res.Took = time.Since(start)
			var why NotApplicable
			if errors.As(res.Err, &why) {
				res.Err, res.NotApplicable = nil, string(why)
			}
		}
		report(j, res)
	}
	return nil
}

func (cfg Config) one(ctx context.Context, lab *netlab.Lab, subject Subject, j job) error {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(10*time.Minute))
	defer cancel()
	r := &run{v: j.variant, lab: lab, subject: subject, mode: j.mode, restarts: cfg.RestartBetweenSteps, patience: cfg.Patience,
		flows: map[string]*flow{}, traffic: map[string]*traffic{}}
	if err := r.do(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(subject.Log(), 12))
	}
	return nil
}
