package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/fairlead/fairlead/"

// file is one parsed Go file of the root module.
type file struct {
	path    string // "internal/model/event.go"
	pkg     string // its folder
	test    bool
	ast     *ast.File
	fset    *token.FileSet
	lines   int
	imports []string
}

// root is the module's root folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// load parses every Go file of the module, nested modules apart: they have
// tests of their own and pin what others wrote.
func load(t *testing.T) []file {
	t.Helper()
	dir := root(t)
	var files []file
	fset := token.NewFileSet()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if d.IsDir() {
			return skip(dir, rel)
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		f, err := parse(fset, name, rel)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Fatalf("only %d files found: the walk is wrong", len(files))
	}
	return files
}

func skip(dir, rel string) error {
	base := path.Base(rel)
	if rel == "." {
		return nil
	}
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, rel, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func parse(fset *token.FileSet, name, rel string) (file, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	tree, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{
		path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"),
		ast: tree, fset: fset, lines: strings.Count(string(src), "\n"),
	}
	for _, imp := range tree.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, p)
	}
	return f, nil
}

// at returns "internal/model/event.go:12".
func (f file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// product reports whether the file is part of what runs: not tests, not tools.
func (f file) product() bool {
	return !f.test && (strings.HasPrefix(f.path, "internal/") || strings.HasPrefix(f.path, "cmd/"))
}

// allowed looks an exception up and notes that it is still needed.
type allowances struct {
	name string
	list map[string]string // what: why
	used map[string]bool
}

func newAllowances(name string, list map[string]string) *allowances {
	return &allowances{name, list, map[string]bool{}}
}

func (a *allowances) has(what string) bool {
	if _, ok := a.list[what]; ok {
		a.used[what] = true
		return true
	}
	return false
}

// checkUsed fails on exceptions that nothing needs any more.
func (a *allowances) checkUsed(t *testing.T) {
	t.Helper()
	for what, why := range a.list {
		if why == "" {
			t.Errorf("allowance %s %s has no reason", a.name, what)
		}
		if !a.used[what] {
			t.Errorf("allowance %s %s is no longer needed: delete it from allowances_test.go", a.name, what)
		}
	}
}
