package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestNoPackageState: what a package knows is in values that a caller made and
// passed on. init() functions and variables that change make two agents in one
// process, and every test after the first, depend on each other.
func TestNoPackageState(t *testing.T) {
	allow := newAllowances("variable", mayBeVariables())
	files := load(t)
	written := writtenNames(files)
	for _, f := range files {
		if !f.product() {
			continue
		}
		for _, fn := range functions(f) {
			if fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s: func init: call it from a constructor", f.at(fn))
			}
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				vs := s.(*ast.ValueSpec)
				for i, name := range vs.Names {
					table := i < len(vs.Values) && isLiteral(vs.Values[i])
					if !constant(g, vs, i) && !(table && !written[f.pkg+"."+name.Name]) && !allow.has(f.pkg+"."+name.Name) {
						t.Errorf("%s: package variable %s may change: make it a value or a function, or give the reason in allowances_test.go", f.at(name), name.Name)
					}
				}
			}
		}
	}
	allow.checkUsed(t)
}

// constant reports whether a variable is one in name only: an interface check, an
// error to compare with, an embedded string, a compiled expression.
func constant(g *ast.GenDecl, vs *ast.ValueSpec, i int) bool {
	if vs.Names[i].Name == "_" {
		return true
	}
	for _, doc := range []*ast.CommentGroup{g.Doc, vs.Doc} {
		if doc != nil && strings.Contains(doc.List[len(doc.List)-1].Text, "//go:embed ") {
			return true
		}
	}
	if i >= len(vs.Values) {
		return false
	}
	call, ok := vs.Values[i].(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && slices.Contains([]string{
		"errors.New", "fmt.Errorf", "regexp.MustCompile", "netip.MustParseAddr", "netip.MustParsePrefix", "netip.AddrFrom4", "netip.PrefixFrom",
	}, x.Name+"."+sel.Sel.Name)
}

// isLiteral reports whether a value is a compiled table: [...]T{...}.
func isLiteral(e ast.Expr) bool {
	_, ok := e.(*ast.CompositeLit)
	return ok
}

// writtenNames returns the names, as "package.name", that some file of the package
// writes to or takes the address of. A table that no code writes is a constant in
// all but name. (A local variable of the same name counts too: rename it.)
func writtenNames(files []file) map[string]bool {
	written := map[string]bool{}
	for _, f := range files {
		mark := func(e ast.Expr) {
			if name := base(e); name != "" {
				written[f.pkg+"."+name] = true
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				if x.Tok != token.DEFINE {
					for _, l := range x.Lhs {
						mark(l)
					}
				}
			case *ast.IncDecStmt:
				mark(x.X)
			case *ast.UnaryExpr:
				if x.Op == token.AND {
					mark(x.X)
				}
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") {
					mark(x.Args[0])
				}
			}
			return true
		})
	}
	return written
}

// base returns a of a, a[i], a.b and *a.
func base(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return ""
		}
	}
}
