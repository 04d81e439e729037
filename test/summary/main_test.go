package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLists: what passed and what is owed to another kernel; a skip for another reason is neither.
func TestLists(t *testing.T) {
	in := `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    x_test.go:1: needs a kernel with flowtables: no such file\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    x_test.go:1: no nft command\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p"}
`
	tl := &tally{out: io.Discard, outputs: map[string][]string{}}
	if err := tl.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(t.TempDir(), "group")
	if err := tl.write(prefix); err != nil {
		t.Fatal(err)
	}
	for suffix, want := range map[string]string{".passed": "p TestA\n", ".owed": "p TestB\n"} {
		if got, err := os.ReadFile(prefix + suffix); err != nil || string(got) != want {
			t.Errorf("%s: %q %v, want %q", suffix, got, err, want)
		}
	}
}
