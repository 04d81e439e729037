package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// The limits of the style guide.
const (
	maxFileLines     = 400
	maxFuncLines     = 60
	maxTestFuncLines = 80
	maxComplexity    = 15
	maxParams        = 4
	maxMethods       = 8
)

func TestFilesAndFunctionsAreShort(t *testing.T) {
	long, complicated := newAllowances("length of", mayBeLong()), newAllowances("complexity of", mayBeComplex())
	for _, f := range load(t) {
		if f.lines > maxFileLines && !f.test && !long.has(f.path) {
			t.Errorf("%s has %d lines, the limit is %d: split it by what its parts are about", f.path, f.lines, maxFileLines)
		}
		limit := maxFuncLines
		if f.test {
			limit = maxTestFuncLines
		}
		for _, fn := range functions(f) {
			name := f.pkg + "." + funcName(fn)
			n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			if n > limit && !long.has(name) {
				t.Errorf("%s: %s has %d lines, the limit is %d", f.at(fn), name, n, limit)
			}
			if c := complexity(fn); c > maxComplexity && !f.test && !complicated.has(name) {
				t.Errorf("%s: %s has cyclomatic complexity %d, the limit is %d", f.at(fn), name, c, maxComplexity)
			}
		}
	}
	long.checkUsed(t)
	complicated.checkUsed(t)
}

func TestSignaturesAreSmall(t *testing.T) {
	params, methods := newAllowances("parameters of", mayHaveManyParams()), newAllowances("methods of", mayHaveManyMethods())
	for _, f := range load(t) {
		if !f.product() {
			continue
		}
		for _, fn := range functions(f) {
			name := f.pkg + "." + funcName(fn)
			if n := fn.Type.Params.NumFields(); n > maxParams && !params.has(name) {
				t.Errorf("%s: %s has %d parameters, the limit is %d: more is a struct", f.at(fn), name, n, maxParams)
			}
		}
		for _, ts := range types(f) {
			it, ok := ts.Type.(*ast.InterfaceType)
			if ok && it.Methods.NumFields() > maxMethods && !methods.has(f.pkg+"."+ts.Name.Name) {
				t.Errorf("%s: interface %s has %d methods, the limit is %d", f.at(ts), ts.Name.Name, it.Methods.NumFields(), maxMethods)
			}
		}
	}
	params.checkUsed(t)
	methods.checkUsed(t)
}

func TestNamesSaySomething(t *testing.T) {
	vague := regexp.MustCompile(`(Manager|Helper|Helpers|Util|Utils|Info)$`)
	for _, f := range load(t) {
		if !f.product() {
			continue
		}
		for _, ts := range types(f) {
			if vague.MatchString(ts.Name.Name) {
				t.Errorf("%s: type %s: say what it does", f.at(ts), ts.Name.Name)
			}
		}
	}
}

func functions(f file) []*ast.FuncDecl {
	var fns []*ast.FuncDecl
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fns = append(fns, fn)
		}
	}
	return fns
}

func types(f file) []*ast.TypeSpec {
	var specs []*ast.TypeSpec
	for _, d := range f.ast.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok {
					specs = append(specs, ts)
				}
			}
		}
	}
	return specs
}

// funcName returns "Name" or "Type.Name".
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	var recv string
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && recv == "" {
			recv = id.Name
		}
		return true
	})
	return recv + "." + fn.Name.Name
}

// complexity is McCabe's number as gocyclo counts it, literals included.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func TestComplexityCounts(t *testing.T) {
	for _, f := range load(t) {
		for _, fn := range functions(f) {
			if strings.HasSuffix(f.path, "archtest/shape_test.go") && fn.Name.Name == "complexity" {
				if got := complexity(fn); got != 9 {
					t.Errorf("complexity counts %d for itself, by hand it is 9", got)
				}
				return
			}
		}
	}
	t.Error("complexity not found")
}
