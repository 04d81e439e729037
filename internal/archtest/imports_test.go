package archtest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// impure are the packages of the standard library that a pure package must not
// have: with them its result could depend on more than its arguments.
func impure() []string {
	return []string{
		"os", "os/exec", "os/signal", "net", "net/http", "syscall", "io/ioutil", "io/fs", "path/filepath", "embed",
		"log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "unsafe", "runtime", "sync", "context", "plugin",
	}
}

func TestImportTable(t *testing.T) {
	rows := map[string]row{}
	for _, r := range table() {
		if r.why == "" {
			t.Errorf("%s: no reason in the table", r.pkg)
		}
		rows[r.pkg] = r
	}
	for _, f := range load(t) {
		if f.test {
			continue
		}
		if r, ok := rows[f.pkg]; ok {
			for _, imp := range f.imports {
				checkImport(t, f, r, imp)
			}
			continue
		}
		switch {
		case strings.HasPrefix(f.pkg, "internal/"):
			t.Errorf("%s is not in the table: say in internal/archtest/table_test.go what it may import and why", f.pkg)
		case strings.HasPrefix(f.pkg, "cmd/"):
			checkCommand(t, f)
		}
	}
}

func checkImport(t *testing.T, f file, r row, imp string) {
	t.Helper()
	if own, ok := strings.CutPrefix(imp, module); ok {
		inner, ok := strings.CutPrefix(own, "internal/")
		if !ok {
			t.Errorf("%s imports %s: the product must not depend on its tests and tools", f.path, imp)
			return
		}
		if own != r.pkg && !slices.Contains(r.internal, inner) && !slices.Contains(r.internal, "*") {
			t.Errorf("%s must not import %s: %s", f.path, own, r.why)
		}
		return
	}
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		if r.pure && slices.Contains(impure(), imp) {
			t.Errorf("%s must not import %s: %s", f.path, imp, r.why)
		}
		return
	}
	if !slices.ContainsFunc(r.outside, func(prefix string) bool { return strings.HasPrefix(imp, prefix) }) {
		t.Errorf("%s must not import %s: %s", f.path, imp, r.why)
	}
}

// checkCommand: a command turns arguments into a call of app.
func checkCommand(t *testing.T, f file) {
	t.Helper()
	for _, imp := range f.imports {
		own, ok := strings.CutPrefix(imp, module)
		if !ok || slices.Contains([]string{"internal/app", "internal/config"}, own) {
			continue
		}
		// The lab is no product: it runs the agent and looks at packets.
		if f.pkg == "cmd/fairlead-lab" && (strings.HasPrefix(own, "test/") || strings.HasPrefix(own, "bench/")) {
			continue
		}
		t.Errorf("%s must not import %s: main is flags and exit codes; wiring belongs to internal/app", f.path, own)
	}
}

// TestNoPlaneSeesAnother repeats the most important line of the table without
// the table, so that a wrong row cannot hide it.
func TestNoPlaneSeesAnother(t *testing.T) {
	for _, f := range load(t) {
		if f.test || f.pkg == "internal/app" {
			continue
		}
		for _, imp := range f.imports {
			inner, ok := strings.CutPrefix(imp, module+"internal/")
			if !ok {
				continue
			}
			plane := strings.HasPrefix(inner, "dataplane/") && inner != "dataplane/dataplanetest"
			if plane && strings.HasPrefix(f.pkg, "internal/") && f.pkg != "internal/"+inner {
				t.Errorf("%s imports the data plane %s: only app may, so that a data plane can be deleted", f.path, inner)
			}
			if strings.HasPrefix(f.pkg, "internal/source/") && strings.HasPrefix(inner, "dataplane") {
				t.Errorf("%s imports %s: source and data plane never see each other", f.path, inner)
			}
		}
	}
}

func TestPureCodeHasNoClock(t *testing.T) {
	pure := map[string]bool{}
	for _, r := range table() {
		pure[r.pkg] = r.pure
	}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	for _, f := range load(t) {
		if f.test || !pure[f.pkg] {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, s.Sel.Name) {
					t.Errorf("%s: time.%s in pure code: hand the time in", f.at(n), s.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestProgramsAreRunOnlyWhereAllowed(t *testing.T) {
	allow := newAllowances("os/exec", mayExec())
	for _, f := range load(t) {
		if f.product() && slices.Contains(f.imports, "os/exec") && !allow.has(f.pkg) {
			t.Errorf("%s runs programs: the agent must work in an image that holds nothing else", f.path)
		}
	}
	allow.checkUsed(t)
}
