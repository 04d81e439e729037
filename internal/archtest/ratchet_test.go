package archtest

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ratchetsFile holds one number per line: "NAME NUMBER".
const ratchetsFile = "testdata/ratchets.txt"

// The limits that the numbers count against.
const (
	shortFile   = 60 // lines; a file with fewer is short
	spreadFiles = 4  // files; a type whose methods lie in more is spread
	roundLines  = 100
)

var record = flag.Bool("record", false, "write the measured numbers to "+ratchetsFile)

// TestRatchets fails when a number of ratchetsFile has risen, and when one has fallen and the file has not been
// lowered. `go test ./internal/archtest -record` writes the measured numbers. A number that has to rise is raised in
// the file by hand, in a commit that says why.
func TestRatchets(t *testing.T) {
	now := measure(load(t))
	if *record {
		var text bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(now)) {
			fmt.Fprintln(&text, name, now[name])
		}
		if err := os.WriteFile(ratchetsFile, text.Bytes(), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(ratchetsFile)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			t.Fatalf("%s: %q: want NAME NUMBER", ratchetsFile, line)
		}
		limits[name] = n
	}
	for name, n := range now {
		if n > limits[name] {
			t.Errorf("%s is %d, and was %d: it may only fall", name, n, limits[name])
		}
	}
	for name, limit := range limits {
		if now[name] < limit {
			t.Errorf("%s has fallen from %d to %d: record it (go test ./internal/archtest -record)", name, limit, now[name])
		}
	}
}

// measure returns the numbers by name. Lines of packages are rounded up to roundLines, so that a small change does not
// touch the file.
func measure(files []file) map[string]int {
	n := map[string]int{}
	lines, methods := map[string]int{}, map[string]map[string]bool{}
	var words, private int
	for _, f := range files {
		if f.test || !strings.HasPrefix(f.path, "internal/") {
			continue
		}
		lines[f.pkg] += f.lines
		if f.lines < shortFile && filepath.Base(f.path) != "doc.go" {
			n["short-files"]++
		}
		text := comments(f)
		words += len(wordPattern.FindAllString(text, -1))
		private += len(privatePattern.FindAllString(text, -1))
		for _, fn := range functions(f) {
			if recv, _, method := strings.Cut(funcName(fn), "."); method {
				typ := f.pkg + "." + recv
				if methods[typ] == nil {
					methods[typ] = map[string]bool{}
				}
				methods[typ][f.path] = true
			}
		}
	}
	for pkg, sum := range lines {
		n["lines:"+pkg] = (sum + roundLines - 1) / roundLines * roundLines
	}
	for typ, in := range methods {
		if len(in) > spreadFiles {
			n["files-of-type:"+typ] = len(in)
		}
	}
	n["private-words-per-10000"] = private * 10000 / max(1, words)
	return n
}

// comments returns the text of a file's comments.
func comments(f file) string {
	var text strings.Builder
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			text.WriteString(c.Text + "\n")
		}
	}
	return text.String()
}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z']+`)
	// privatePattern matches the private vocabulary that docs/design/glossary.md replaces.
	privatePattern = regexp.MustCompile(`(?i)\b(tells?|told|telling|gives?|nobody|somebody|ours|anew|whoever|beside|meanwhile|mostly|leads? to|strangers?|` +
		`as (it|they) (was|is|were|are)|belie(f|ve|ved|ves)|(a|the|one|each|last|next|first) look|news)\b`)
)

// TestMeasure holds what each number counts.
func TestMeasure(t *testing.T) {
	if got := privatePattern.FindAllString("It tells nobody; as it was. Beliefs, tell, a look at lookups.", -1); len(got) != 5 {
		t.Errorf("private words: %q", got)
	}
	var spread []file
	for i := range spreadFiles + 1 {
		spread = append(spread, file{path: fmt.Sprintf("internal/x/f%d.go", i), pkg: "internal/x", lines: shortFile - 1, ast: method()})
	}
	got := measure(spread)
	want := map[string]int{"short-files": 5, "lines:internal/x": 300, "files-of-type:internal/x.T": 5, "private-words-per-10000": 0}
	if !maps.Equal(got, want) {
		t.Errorf("measured %v, want %v", got, want)
	}
}

// method returns a file that declares one method of the type T.
func method() *ast.File {
	return &ast.File{Decls: []ast.Decl{&ast.FuncDecl{
		Name: ast.NewIdent("M"), Type: &ast.FuncType{Params: &ast.FieldList{}}, Body: &ast.BlockStmt{},
		Recv: &ast.FieldList{List: []*ast.Field{{Type: &ast.StarExpr{X: ast.NewIdent("T")}}}},
	}}}
}
