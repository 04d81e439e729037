// Command summary reads `go test -json` on standard input and prints a short report:
// failures with their output, every skip with its reason, the time of each package, and
// one line "name: N passed, N failed, N skipped".
//
//	go test -json ./... | go run ./test/summary unit
//
// It exits with 1 if anything failed or nothing ran. With -lists PREFIX it also writes
// the names of the tests that passed to PREFIX.passed, the names of the tests that need
// another kernel than this machine's to PREFIX.owed, and a line "N kind" for each kind of
// proof to PREFIX.proof: those that package test/proof reports, and fuzz inputs.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type tally struct {
	out                               io.Writer
	passed, failed, skipped, property int
	outputs                           map[string][]string
	names                             struct{ passed, owed []string }
	proof                             map[string]int // by kind
}

// owedFor is the prefix of the reason of a skip for which the test must run on another
// kernel.
const owedFor = "needs a kernel with "

var (
	proof     = regexp.MustCompile(`proof: (\d+) (.+)\n$`)
	fuzzInput = regexp.MustCompile(`^Fuzz\w+/`)
)

// property tests draw random inputs; they are counted apart, within the total.
var property = regexp.MustCompile(`Random|Property|Fuzz|Metamorphic|Sequences`)

func main() {
	lists := flag.String("lists", "", "write what passed and what is owed to files that begin so")
	flag.Parse()
	name := "tests"
	if flag.NArg() > 0 {
		name = flag.Arg(0)
	}
	t := &tally{out: os.Stdout, outputs: map[string][]string{}, proof: map[string]int{}}
	if err := t.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
	if err := t.write(*lists); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped (%d of them property tests)\n", name, t.passed, t.failed, t.skipped, t.property)
	if t.failed > 0 || t.passed == 0 {
		os.Exit(1)
	}
}

func (t *tally) read(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 1<<20), 16<<20)
	for sc.Scan() {
		var ev event
		if !strings.HasPrefix(sc.Text(), "{") || json.Unmarshal(sc.Bytes(), &ev) != nil {
			fmt.Fprintln(t.out, sc.Text()) // for example a build error
			continue
		}
		t.see(ev)
	}
	return sc.Err()
}

func (t *tally) see(ev event) {
	key := ev.Package + " " + ev.Test
	switch ev.Action {
	case "output", "build-output":
		t.outputs[key] = append(t.outputs[key], ev.Output)
		if m := proof.FindStringSubmatch(ev.Output); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits only
			t.proof[m[2]] += n
		}
	case "build-fail":
		fmt.Fprint(t.out, strings.Join(t.outputs[key], ""))
	case "pass":
		if ev.Test == "" {
			fmt.Fprintf(t.out, "ok    %-72s %6.1fs\n", ev.Package, ev.Elapsed)
			return
		}
		t.passed++
		t.names.passed = append(t.names.passed, key)
		t.count(ev)
		if fuzzInput.MatchString(ev.Test) {
			t.proof["fuzz inputs"]++
		}
		delete(t.outputs, key)
	case "skip":
		if ev.Test == "" {
			return // a package without tests
		}
		t.skipped++
		reason := strings.Join(t.outputs[key], "")
		delete(t.outputs, key)
		fmt.Fprintf(t.out, "SKIP  %s\n%s", key, reason)
		if strings.Contains(reason, owedFor) {
			t.names.owed = append(t.names.owed, key)
		}
	case "fail":
		t.failed++
		t.count(ev)
		fmt.Fprintf(t.out, "FAIL  %s %.1fs\n%s", key, ev.Elapsed, strings.Join(t.outputs[key], ""))
		delete(t.outputs, key)
		if ev.Test == "" {
			t.cutShort(ev.Package)
		}
	}
}

// cutShort prints the output of a package's tests that never ended. A package that
// crashes or exceeds its time limit prints the goroutines as output of the test that was
// running.
func (t *tally) cutShort(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(t.outputs)) {
		if name, ours := strings.CutPrefix(key, pkg+" "); ours && name != "" {
			fmt.Fprintf(t.out, "CUT   %s\n%s", key, strings.Join(t.outputs[key], ""))
			delete(t.outputs, key)
		}
	}
}

func (t *tally) count(ev event) {
	if property.MatchString(ev.Test) {
		t.property++
	}
}

// write writes the lists, one test or one kind of proof a line.
func (t *tally) write(prefix string) error {
	if prefix == "" {
		return nil
	}
	text := func(names []string) []byte {
		var out []byte
		for _, n := range names {
			out = append(append(out, n...), '\n')
		}
		return out
	}
	var proofs []string
	for _, kind := range slices.Sorted(maps.Keys(t.proof)) {
		proofs = append(proofs, fmt.Sprint(t.proof[kind], " ", kind))
	}
	return errors.Join(os.WriteFile(prefix+".passed", text(t.names.passed), 0o644), os.WriteFile(prefix+".owed", text(t.names.owed), 0o644),
		os.WriteFile(prefix+".proof", text(proofs), 0o644))
}
