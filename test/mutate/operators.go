package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	id       int    // not 0
	operator string // the kind of change; a sample takes mutants of each kind in turn
	file     string // below the module's root
	line     int
	source   string // the line, trimmed
	what     string // "< to <="
}

// key identifies a mutant in docs/mutation.md. It has no line number, because line
// numbers change too often.
func (m *mutant) key() string {
	return m.file + "|" + strings.ReplaceAll(m.source, "`", "'") + "|" + m.what
}

// file is one source file and its mutants.
type file struct {
	name    string // below the module's root
	src     []byte
	lines   []string
	fset    *token.FileSet
	tree    *ast.File
	info    *types.Info
	pkg     *types.Package
	sites   map[ast.Node][]site
	mutants []*mutant

	next    int               // the next id
	parents []ast.Node        // of the node that is visited
	targets map[ast.Expr]bool // expressions that are assigned to, or whose address is taken
}

// find finds the mutants of the file and returns the next free id.
func (f *file) find(next int) int {
	f.next, f.sites, f.targets = next, map[ast.Node][]site{}, map[ast.Expr]bool{}
	f.lines = strings.Split(string(f.src), "\n")
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n == nil {
			f.parents = f.parents[:len(f.parents)-1]
			return true
		}
		if !f.visit(n) {
			return false
		}
		f.parents = append(f.parents, n)
		return true
	})
	return f.next
}

func (f *file) offset(p token.Pos) int { return f.fset.PositionFor(p, false).Offset }

func (f *file) text(n ast.Node) string { return string(f.src[f.offset(n.Pos()):f.offset(n.End())]) }

// add adds a mutant at a node; at is the position that is reported.
func (f *file) add(n ast.Node, at token.Pos, operator, what string, how form, alt string) {
	line := f.fset.PositionFor(at, false).Line
	f.mutants = append(f.mutants, &mutant{id: f.next, operator: operator, file: f.name, line: line,
		source: strings.TrimSpace(f.lines[line-1]), what: what})
	f.sites[n] = append(f.sites[n], site{id: f.next, form: how, alt: alt})
	f.next++
}

// visit adds the mutants of one node and reports whether its children have any.
func (f *file) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.FuncType, *ast.ArrayType, *ast.StructType, *ast.MapType, *ast.ChanType, *ast.InterfaceType:
		return false
	case *ast.FuncDecl:
		f.earlyReturn(n.Type, n.Body)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	case ast.Stmt:
		f.statement(n)
	case ast.Expr:
		return f.expression(n)
	}
	return true
}

// expression adds the mutants of an expression and reports whether its children have any.
func (f *file) expression(n ast.Expr) bool {
	switch n := n.(type) {
	case *ast.FuncLit:
		f.earlyReturn(n.Type, n.Body)
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.CallExpr:
		f.minMax(n)
	case *ast.CompositeLit:
		f.literal(n)
	case *ast.UnaryExpr:
		if _, isLiteral := n.X.(*ast.CompositeLit); n.Op == token.AND && !isLiteral {
			f.targets[n.X] = true
		}
	case *ast.Ident:
		f.wrongVariable(n)
		f.wrongConstant(n, n, "")
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			if _, isPackage := f.info.Uses[x].(*types.PkgName); isPackage {
				f.wrongConstant(n, n.Sel, x.Name+".")
				return false
			}
		}
		f.wrongField(n)
	}
	return true
}

func (f *file) binary(n *ast.BinaryExpr) {
	tv := f.info.Types[n]
	if tv.Value != nil {
		return
	}
	x, y := f.text(n.X), f.text(n.Y)
	switch n.Op {
	case token.EQL:
		f.add(n, n.OpPos, "comparison", "== to !=", flip, "")
	case token.NEQ:
		f.add(n, n.OpPos, "comparison", "!= to ==", flip, "")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		others := map[token.Token][]string{token.LSS: {"<=", ">"}, token.LEQ: {"<", ">="}, token.GTR: {">=", "<"}, token.GEQ: {">", "<="}}
		for _, other := range others[n.Op] {
			f.add(n, n.OpPos, "comparison", n.Op.String()+" to "+other, either, x+" "+other+" "+y)
		}
	case token.LAND, token.LOR:
		other := map[token.Token]string{token.LAND: "||", token.LOR: "&&"}[n.Op]
		f.add(n, n.OpPos, "logic", n.Op.String()+" to "+other, either, "("+x+") "+other+" ("+y+")")
		f.add(n, n.OpPos, "branch", n.Op.String()+" to its left side", either, x)
		f.add(n, n.OpPos, "branch", n.Op.String()+" to its right side", either, y)
	case token.ADD, token.SUB:
		if basic, ok := tv.Type.Underlying().(*types.Basic); !ok || basic.Info()&(types.IsInteger|types.IsFloat) == 0 {
			return
		}
		if n.Op == token.ADD {
			f.add(n, n.OpPos, "arithmetic", "+ to -", operand, "mutantAdd")
		} else {
			f.add(n, n.OpPos, "arithmetic", "- to +", operand, "mutantSub")
		}
	}
}

func (f *file) minMax(n *ast.CallExpr) {
	id, ok := n.Fun.(*ast.Ident)
	if _, isBuiltin := f.info.Uses[id].(*types.Builtin); !ok || !isBuiltin || f.info.Types[n].Value != nil {
		return
	}
	switch id.Name {
	case "min":
		f.add(n, n.Pos(), "min and max", "min to max", operand, "mutantMin")
	case "max":
		f.add(n, n.Pos(), "min and max", "max to min", operand, "mutantMax")
	}
}

// literal leaves out one field of a struct.
func (f *file) literal(n *ast.CompositeLit) {
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok {
			continue
		}
		field, ok := f.info.Uses[key].(*types.Var)
		if !ok || !field.IsField() || isZero(f.info.Types[kv.Value]) {
			continue
		}
		if name, ok := f.typeName(field.Type()); ok {
			f.add(kv.Value, kv.Pos(), "field left out", "field "+key.Name+" left out", wrap, "mutantZero["+name+"]")
		}
	}
}

func isZero(tv types.TypeAndValue) bool {
	if tv.Value == nil {
		return tv.IsNil()
	}
	switch tv.Value.Kind() {
	case constant.Bool:
		return !constant.BoolVal(tv.Value)
	case constant.String:
		return constant.StringVal(tv.Value) == ""
	default:
		return constant.Sign(tv.Value) == 0
	}
}

// typeName returns how the file writes a type, if it imports all packages in it.
func (f *file) typeName(t types.Type) (name string, ok bool) {
	ok = true
	name = types.TypeString(t, func(p *types.Package) string {
		if p == f.pkg {
			return ""
		}
		for _, spec := range f.tree.Imports {
			if pkg := f.info.PkgNameOf(spec); pkg != nil && pkg.Imported() == p {
				return pkg.Name()
			}
		}
		ok = false
		return ""
	})
	return name, ok
}
