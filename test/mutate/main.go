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
	pkgs := flag.String("pkg", "policy,engine,delta", "packages to mutate: paths below internal/, short names, or all")
	sample := flag.Int("sample", 100, "mutants of each package; 0 = every one")
	seed := flag.Uint64("seed", 1, "which mutants a sample takes")
	parallel := flag.Int("p", 2, "how many run at a time")
	kernel := flag.Bool("kernel", false, "run tests that program a real kernel too")
	skip := flag.String("skip", "", "pattern of tests that do not run")
	known := flag.String("known", "docs/mutation.md", "where equivalent mutants are listed")
	flag.Parse()
	equivalent, err := readEquivalent(*known)
	if err != nil {
		fail(err)
	}
	all, err := targetNames()
	if err != nil {
		fail(err)
	}
	names, err := choose(*pkgs, all)
	if err != nil {
		fail(err)
	}
	if !*kernel {
		*skip = strings.Trim(*skip+"|"+kernelTests, "|")
	}
	r := runner{equivalent: equivalent, parallel: *parallel, sample: *sample, seed: *seed, skip: *skip}
	var table []string
	failed := false
	for _, name := range names {
		row, err := r.run(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", name, err)
			row, failed = fmt.Sprintf("%-24s failed", name), true
		}
		table = append(table, row)
	}
	fmt.Printf("\n%-24s %7s %8s %6s %10s %8s %7s\n%s\n", "package", "killed", "survived", "share", "equivalent", "unbuilt", "seconds", strings.Join(table, "\n"))
	if failed {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutate:", err)
	os.Exit(1)
}

// outcome is the verdict of the tests on a mutant.
type outcome uint8

const (
	killed outcome = iota
	survived
	isEquivalent
	outcomes
)

func (o outcome) String() string { return [...]string{"killed", "survived", "equivalent"}[o] }

// runner tests the mutants of one package after the other.
type runner struct {
	equivalent       map[string]bool
	parallel, sample int
	seed             uint64
	skip             string
}

// run tests a sample of a package's mutants and returns its row of the table.
func (r *runner) run(name string) (row string, err error) {
	start := time.Now()
	t, files, err := load(name)
	if err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	b, err := build(t, files, scratch)
	if err != nil {
		return "", err
	}
	var list []*mutant
	for _, f := range files {
		list = append(list, slices.DeleteFunc(f.mutants, func(m *mutant) bool { return b.removed[m.id] })...)
	}
	b.skip = r.skip
	fmt.Printf("%s: %d mutants, %d more do not build\n", name, len(list), len(b.removed))
	if err := b.baseline(); err != nil {
		return "", err
	}
	list = draw(list, r.sample, r.seed)
	fmt.Printf("%s: runs %d mutants, time limit %s\n", name, len(list), b.limit.Round(time.Second))
	n := r.tryAll(b, list)
	share := 100 * float64(n[killed]) / float64(max(1, n[killed]+n[survived]))
	fmt.Printf("%s: %d killed, %d survived (%.0f %% killed), %d equivalent\n", name, n[killed], n[survived], share, n[isEquivalent])
	return fmt.Sprintf("%-24s %7d %8d %4.0f %% %10d %8d %7.0f", name, n[killed], n[survived], share, n[isEquivalent], len(b.removed), time.Since(start).Seconds()), nil
}

// tryAll runs the tests with each mutant of the list and counts the outcomes.
func (r *runner) tryAll(b *binary, list []*mutant) (n [outcomes]int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan *mutant)
	done := 0
	for range r.parallel {
		wg.Go(func() {
			for m := range next {
				o := survived
				if _, err := b.test(m.id); err != nil {
					o = killed
				} else if r.equivalent[m.key()] {
					o = isEquivalent
				}
				mu.Lock()
				n[o]++
				done++
				fmt.Printf("%3d/%d %-10s %s:%d: `%s` `%s`\n", done, len(list), o, m.file, m.line, m.source, m.what)
				mu.Unlock()
			}
		})
	}
	for _, m := range list {
		next <- m
	}
	close(next)
	wg.Wait()
	return n
}

// draw selects n mutants (0: all) at random, from each operator in turn.
func draw(list []*mutant, n int, seed uint64) (out []*mutant) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	var order []string
	groups := map[string][]*mutant{}
	for _, m := range list {
		if len(groups[m.operator]) == 0 {
			order = append(order, m.operator)
		}
		groups[m.operator] = append(groups[m.operator], m)
	}
	if n == 0 || n > len(list) {
		n = len(list)
	}
	for len(out) < n {
		for _, operator := range order {
			if g := groups[operator]; len(g) > 0 && len(out) < n {
				out = append(out, g[0])
				groups[operator] = g[1:]
			}
		}
	}
	return out
}

// readEquivalent reads the list items that begin with `file` `line` `mutation`.
func readEquivalent(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		parts := strings.Split(line, "`")
		if strings.HasPrefix(line, "- `") && len(parts) >= 6 && parts[2] == " " && parts[4] == " " {
			out[parts[1]+"|"+parts[3]+"|"+parts[5]] = true
		}
	}
	return out, nil
}
