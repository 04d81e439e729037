package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLists checks the lists: a skip requires a run on another kernel only if its reason
// says so.
func TestLists(t *testing.T) {
	in := `{"Action":"output","Package":"p","Test":"TestA","Output":"    x_test.go:7: proof: 20 random histories\n"}
{"Action":"output","Package":"p","Output":"proof: 3 random histories\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"FuzzA/seed#0"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    x_test.go:1: needs a kernel with flowtables: no such file\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    x_test.go:1: no nft command\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p"}
`
	tl := &tally{out: io.Discard, outputs: map[string][]string{}, proof: map[string]int{}}
	if err := tl.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(t.TempDir(), "group")
	if err := tl.write(prefix); err != nil {
		t.Fatal(err)
	}
	for suffix, want := range map[string]string{".passed": "p TestA\np FuzzA/seed#0\n", ".owed": "p TestB\n",
		".proof": "1 fuzz inputs\n23 random histories\n"} {
		if got, err := os.ReadFile(prefix + suffix); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", suffix, got, err, want)
		}
	}
}

// TestCutShort checks the report of a package that exceeded its time limit: it has no
// result for the test that hung, and that test's output, with the goroutines, is the only
// evidence of the cause.
func TestCutShort(t *testing.T) {
	in := `{"Action":"output","Package":"p","Test":"TestA","Output":"fine\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out\n"}
{"Action":"output","Package":"p2","Test":"TestC","Output":"runs still\n"}
{"Action":"output","Package":"p","Output":"FAIL p\n"}
{"Action":"fail","Package":"p"}
`
	var out strings.Builder
	tl := &tally{out: &out, outputs: map[string][]string{}}
	if err := tl.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "FAIL  p  0.0s\nFAIL p\nCUT   p TestB\npanic: test timed out\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
