package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	seen, doc := map[string]bool{}, map[string]bool{}
	for _, f := range load(t) {
		if !strings.HasPrefix(f.pkg, "internal/") {
			continue
		}
		seen[f.pkg] = true
		if filepath.Base(f.path) == "doc.go" && f.ast.Doc != nil && len(strings.Fields(f.ast.Doc.Text())) >= 12 {
			doc[f.pkg] = true
		}
	}
	for pkg := range seen {
		if !doc[pkg] {
			t.Errorf("%s has no doc.go that says what it owns, who calls it and on which goroutine", pkg)
		}
	}
}

func TestModuleFile(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Module.Mod.Path+"/" != module {
		t.Errorf("module is %s", m.Module.Mod.Path)
	}
	if len(m.Replace) > 0 {
		t.Errorf("go.mod replaces %s: nobody could go install this", m.Replace[0].Old.Path)
	}
}

func TestLicence(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("LICENSE lacks %q", part)
		}
	}
}

// TestSuppressionsHaveReasons: a linter switched off without a reason cannot be
// switched on again.
func TestSuppressionsHaveReasons(t *testing.T) {
	bare := regexp.MustCompile(`^//(nolint(:[\w,]+)?|lint:ignore \S+)\s*$`)
	for _, f := range load(t) {
		for _, g := range f.ast.Comments {
			for _, c := range g.List {
				if bare.MatchString(c.Text) {
					t.Errorf("%s: %s without a reason", f.at(c), c.Text)
				}
			}
		}
	}
}

// TestNoPathsOfOneMachine: sources name no folder of the machine they were
// written on.
func TestNoPathsOfOneMachine(t *testing.T) {
	foreign := regexp.MustCompile(`(^|[\s"'` + "`" + `(=])/(work|farm|home/\w+)/\S*`)
	text := []string{".go", ".md", ".sh", ".yaml", ".yml", ".txtar", ".nft", ".mod", ""}
	dir, n := root(t), 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := filepath.Base(name)
		if d.IsDir() {
			if name != dir && (strings.HasPrefix(base, ".") || base == "bin" || base == "results") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(text, filepath.Ext(base)) || strings.HasPrefix(base, ".") {
			return nil
		}
		n++
		data, err := os.ReadFile(name)
		if m := foreign.Find(data); m != nil {
			rel, _ := filepath.Rel(dir, name)
			t.Errorf("%s names %s", rel, bytes.TrimSpace(m))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Errorf("only %d files looked at", n)
	}
}
