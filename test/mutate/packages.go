package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// root is the directory of the packages that are mutated.
const root = "internal"

// excluded are the packages with tests whose own code runs in tests only.
var excluded = []string{"archtest", "dataplane/dataplanetest", "kernel/netnstest"}

// target is a package with tests.
type target struct {
	name string // path below internal/
	pkg  *packages.Package
}

func (t *target) dir() string { return filepath.Join(root, t.name) }

// targetNames returns all packages below internal/ that have code and tests, by their
// paths below internal/.
func targetNames() ([]string, error) {
	pkgs, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedForTest, Tests: true}, "./"+root+"/...")
	if err != nil {
		return nil, err
	}
	hasTests := map[string]bool{}
	for _, p := range pkgs {
		if p.ForTest != "" {
			hasTests[p.ForTest] = true
		}
	}
	var out []string
	for _, p := range pkgs {
		_, name, _ := strings.Cut(p.PkgPath, "/"+root+"/")
		if p.ForTest == "" && hasTests[p.PkgPath] && len(p.GoFiles) > 0 && !slices.Contains(excluded, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// choose resolves a comma-separated list of names: a path below internal/, a data plane,
// the last element of one path, or all.
func choose(list string, all []string) (out []string, err error) {
	for name := range strings.SplitSeq(list, ",") {
		name = strings.Trim(strings.TrimPrefix(strings.TrimPrefix(name, "./"), root+"/"), "/")
		if name == "all" {
			out = append(out, all...)
			continue
		}
		var last []string
		for _, path := range all {
			if strings.HasSuffix(path, "/"+name) {
				last = append(last, path)
			}
		}
		switch {
		case slices.Contains(all, name):
			out = append(out, name)
		case slices.Contains(all, "dataplane/"+name):
			out = append(out, "dataplane/"+name)
		case len(last) == 1:
			out = append(out, last[0])
		default:
			return nil, fmt.Errorf("no single package %q: want all, or some of %s", name, strings.Join(all, ", "))
		}
	}
	return out, nil
}

// load type-checks the package and finds its mutants.
func load(name string) (*target, []*file, error) {
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, "./"+root+"/"+name)
	if err != nil {
		return nil, nil, err
	}
	if len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		return nil, nil, errors.New("the package does not build: " + fmt.Sprint(pkgs[0].Errors))
	}
	t := &target{name: name, pkg: pkgs[0]}
	var files []*file
	next := 1
	for i, tree := range t.pkg.Syntax {
		path := t.pkg.CompiledGoFiles[i]
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		f := &file{name: filepath.Join(t.dir(), filepath.Base(path)), src: src, fset: t.pkg.Fset, tree: tree, info: t.pkg.TypesInfo, pkg: t.pkg.Types}
		next = f.find(next)
		files = append(files, f)
	}
	return t, files, nil
}
