package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	pkgs := flag.String("pkg", "policy,engine,delta", "packages to mutate, by their short names, or all")
	sample := flag.Int("sample", 100, "mutants of each package; 0 = every one")
	seed := flag.Uint64("seed", 1, "which mutants a sample takes")
	parallel := flag.Int("p", 2, "how many run at a time")
	kernel := flag.Bool("kernel", false, "run tests that program a real kernel too")
	known := flag.String("known", "docs/mutation.md", "where mutants that change nothing are listed")
	flag.Parse()
	names := strings.Split(*pkgs, ",")
	if *pkgs == "all" {
		names = targetNames()
	}
	equivalent, err := readEquivalent(*known)
	if err != nil {
		fail(err)
	}
	r := runner{equivalent: equivalent, parallel: *parallel, kernel: *kernel}
	for _, name := range names {
		t, err := targetNamed(name)
		if err != nil {
			fail(err)
		}
		all, together, err := t.mutants()
		if err != nil {
			fail(err)
		}
		rnd := rand.New(rand.NewPCG(*seed, 0))
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if *sample > 0 && *sample < len(all) {
			all = all[:*sample]
		}
		if err := r.run(t, all, together); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutate:", err)
	os.Exit(1)
}

// runner runs mutants and counts.
type runner struct {
	equivalent map[string]bool
	parallel   int
	kernel     bool
}

func (r *runner) run(t target, list []mutant, together map[string]string) error {
	binary, remove, err := t.binary(together)
	if remove != nil {
		defer remove()
	}
	if err != nil {
		return err
	}
	limit, err := t.baseline(binary, r.kernel)
	if err != nil {
		return err
	}
	results := make([]outcome, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range r.parallel {
		wg.Go(func() {
			for i := range next {
				results[i] = t.try(&list[i], binary, limit, r.kernel)
				if results[i] == survived && r.equivalent[list[i].key()] {
					results[i] = isEquivalent
				}
				fmt.Println(results[i], list[i].String())
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	r.sum(t, list, results, limit)
	return nil
}

func (r *runner) sum(t target, list []mutant, results []outcome, limit time.Duration) {
	var n [outcomes]int
	for _, o := range results {
		n[o]++
	}
	counted := n[killed] + n[survived]
	share := 100.0
	if counted > 0 {
		share = 100 * float64(n[killed]) / float64(counted)
	}
	fmt.Printf("%s: %d mutants: %d killed, %d survived (%.0f %% killed), %d change nothing, %d do not build; time-out %s\n",
		t.name, len(list), n[killed], n[survived], share, n[isEquivalent], n[unbuilt], limit.Round(time.Second))
}

// readEquivalent reads list items that begin with `file` `line` `mutation`.
func readEquivalent(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		parts := strings.Split(line, "`")
		if strings.HasPrefix(line, "- `") && len(parts) >= 6 && slices.Equal([]string{parts[2], parts[4]}, []string{" ", " "}) {
			out[parts[1]+"|"+parts[3]+"|"+parts[5]] = true
		}
	}
	return out, nil
}
