// Command summary reads `go test -json` on standard input and prints what a
// person wants to know: failures with their output, every skip with its reason,
// the time of each package, and one line "name: N passed, N failed, N skipped".
//
//	go test -json ./... | go run ./test/summary unit
//
// It exits with 1 if anything failed or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
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
}

// property tests draw random inputs; they are counted apart, within the total.
var property = regexp.MustCompile(`Random|Property|Fuzz|Metamorphic|Sequences`)

func main() {
	name := "tests"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	t := &tally{out: os.Stdout, outputs: map[string][]string{}}
	if err := t.read(os.Stdin); err != nil {
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
			fmt.Fprintln(t.out, sc.Text()) // a build error, say
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
	case "build-fail":
		fmt.Fprint(t.out, strings.Join(t.outputs[key], ""))
	case "pass":
		if ev.Test == "" {
			fmt.Fprintf(t.out, "ok    %-72s %6.1fs\n", ev.Package, ev.Elapsed)
			return
		}
		t.passed++
		t.count(ev)
		delete(t.outputs, key)
	case "skip":
		if ev.Test == "" {
			return // a package without tests
		}
		t.skipped++
		fmt.Fprintf(t.out, "SKIP  %s\n%s", key, strings.Join(t.outputs[key], ""))
	case "fail":
		t.failed++
		t.count(ev)
		fmt.Fprintf(t.out, "FAIL  %s %.1fs\n%s", key, ev.Elapsed, strings.Join(t.outputs[key], ""))
	}
}

func (t *tally) count(ev event) {
	if property.MatchString(ev.Test) {
		t.property++
	}
}
