package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// source contains each operator at least once; want lists its mutants in the order of
// their ids.
const source = `package world

type proto uint8

const (
	tcp proto = iota
	udp
)

type conn struct {
	local, remote int
	proto         proto
}

func count(list []conn, limit int) (n int) {
	for _, c := range list {
		if c.proto == udp || c.local >= limit {
			continue
		}
		n += min(c.local, 9) + 1
	}
	return n
}

func (c *conn) forget(all bool) error {
	defer print()
	for range 2 {
		c.local--
	}
	return nil
}

func fresh(n int) (*conn, bool) { return &conn{local: n, proto: tcp, remote: 0}, true }
`

const want = `16 range over the first element only
20 the statement deleted
17 the condition inverted
17 || to &&
17 || to its left side
17 || to its right side
17 == to !=
17 udp to tcp
17 >= to >
17 >= to <=
17 c.local to .remote
17 limit to n
18 the statement deleted
18 continue to break
20 + to -
20 min to max
20 c.local to .remote
22 n to limit
26 return nil at the start
27 return nil before the loop
26 the statement deleted
28 the statement deleted
28 c.local to .remote
33 true to false
33 field local left out
33 tcp to udp
`

func parse(t *testing.T, fset *token.FileSet, name, src string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		t.Fatalf("%v\n%s", err, src)
	}
	return tree
}

func worldFile(t *testing.T) *file {
	t.Helper()
	f := &file{name: "world.go", src: []byte(source), fset: token.NewFileSet(), info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Scopes: map[ast.Node]*types.Scope{},
	}}
	f.tree = parse(t, f.fset, f.name, source)
	var err error
	if f.pkg, err = (&types.Config{}).Check("world", f.fset, []*ast.File{f.tree}, f.info); err != nil {
		t.Fatal(err)
	}
	f.find(1)
	return f
}

func TestOperators(t *testing.T) {
	f := worldFile(t)
	var got strings.Builder
	for _, m := range f.mutants {
		fmt.Fprintln(&got, m.line, m.what)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
}

// TestOverlay compiles the source with all mutants, and compares one line.
func TestOverlay(t *testing.T) {
	f := worldFile(t)
	text := f.overlay(nil)
	fset := token.NewFileSet()
	files := []*ast.File{parse(t, fset, "world.go", text), parse(t, fset, "mutant_chosen.go", "package world\n"+helpers)}
	if _, err := (&types.Config{Importer: importer.Default()}).Check("world", fset, files, nil); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	const loop = "if mutantIs(23) { c.remote-- } else { if mutantIs(22) {  } else { c.local-- } }"
	if !strings.Contains(text, loop) {
		t.Errorf("no %q in\n%s", loop, text)
	}
	if got := f.overlay(map[int]bool{22: true, 23: true}); !strings.Contains(got, "\t\tc.local--\n") {
		t.Errorf("removed mutants are still in\n%s", got)
	}
}

// TestRemove checks that the compiler's errors identify their mutants.
func TestRemove(t *testing.T) {
	b := binary{dir: "internal/world", removed: map[int]bool{}}
	text := map[string]string{"internal/world/a.go": "mutantPick(1, a, b)\nmutantZero[int](2, mutantPick(3, c, d))\n\n}"}
	if !b.remove(text, "# world\ninternal/world/a.go:2:3: wrong type\n./a.go:4:1: missing return\n") {
		t.Error("no mutant removed")
	}
	if diff := cmp.Diff(map[int]bool{2: true, 3: true}, b.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if b.remove(text, "b.go:1:1: not of a mutant") {
		t.Error("removed a mutant for another file's error")
	}
}

func TestDrawTakesOperatorsInTurn(t *testing.T) {
	var list []*mutant
	for i := range 20 {
		list = append(list, &mutant{id: i + 1, operator: "statement"})
	}
	list = append(list, &mutant{id: 21, operator: "continue"}, &mutant{id: 22, operator: "logic"})
	of := map[string]int{}
	for _, m := range draw(list, 6, 1) {
		of[m.operator]++
	}
	if diff := cmp.Diff(map[string]int{"statement": 4, "continue": 1, "logic": 1}, of); diff != "" {
		t.Errorf("drawn (-want +got):\n%s", diff)
	}
}

func TestChoose(t *testing.T) {
	all := []string{"conntrack", "dataplane/ipvs", "kernel/conntrack", "kernel/ipvs", "kernel/nft", "source/k8s"}
	for list, want := range map[string][]string{
		"conntrack,ipvs":               {"conntrack", "dataplane/ipvs"},
		"k8s,internal/kernel/ipvs":     {"source/k8s", "kernel/ipvs"},
		"./internal/kernel/conntrack/": {"kernel/conntrack"},
		"all":                          all,
	} {
		if got, err := choose(list, all); err != nil || !cmp.Equal(got, want) {
			t.Errorf("choose(%q) = %v, %v; want %v", list, got, err, want)
		}
	}
	if _, err := choose("policies", all); err == nil {
		t.Error("an unknown package is accepted")
	}
}
