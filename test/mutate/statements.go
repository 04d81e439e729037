package main

import (
	"go/ast"
	"go/token"
	"go/types"
)

// statement adds the mutants of one statement that do not depend on what surrounds it.
func (f *file) statement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.IfStmt:
		if b, ok := n.Cond.(*ast.BinaryExpr); !ok || b.Op != token.EQL && b.Op != token.NEQ { // inverted by its operator already
			f.add(n.Cond, n.Cond.Pos(), "condition", "the condition inverted", flip, "")
		}
	case *ast.RangeStmt:
		f.ranged(n)
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			f.returned(r)
		}
	case *ast.AssignStmt:
		for _, e := range n.Lhs {
			f.targets[e] = true
		}
	case *ast.IncDecStmt:
		f.targets[n.X] = true
	case *ast.BlockStmt:
		f.statements(n.List)
	}
}

func (f *file) returned(r ast.Expr) {
	if id, ok := r.(*ast.Ident); ok && id.Name == "true" {
		f.add(r, r.Pos(), "returned boolean", "true to false", flip, "")
	} else if ok && id.Name == "false" {
		f.add(r, r.Pos(), "returned boolean", "false to true", flip, "")
	}
}

func (f *file) ranged(n *ast.RangeStmt) {
	for _, e := range []ast.Expr{n.Key, n.Value} {
		if e != nil {
			f.targets[e] = true
		}
	}
	if _, ok := f.info.TypeOf(n.X).Underlying().(*types.Slice); ok {
		f.add(n.X, n.X.Pos(), "first element", "range over the first element only", wrap, "mutantFirst")
	}
}

// statements adds the mutants of the statements of a block.
func (f *file) statements(list []ast.Stmt) {
	for _, s := range list {
		f.deleted(s)
		switch s := s.(type) {
		case *ast.IncDecStmt:
			f.assignedField(s, s.X)
		case *ast.AssignStmt:
			if len(s.Lhs) == 1 && s.Tok != token.DEFINE {
				f.assignedField(s, s.Lhs[0])
			}
		case *ast.BranchStmt:
			if s.Tok == token.CONTINUE && s.Label == nil && f.breaks() {
				f.add(s, s.Pos(), "continue", "continue to break", replace, "break")
			}
		}
	}
}

// deleted deletes a statement that declares nothing and ends no function.
func (f *file) deleted(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.IncDecStmt, *ast.DeferStmt, *ast.SendStmt, *ast.GoStmt:
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && isPanic(call) {
			return
		}
	case *ast.BranchStmt:
		if s.Label != nil || s.Tok == token.FALLTHROUGH {
			return
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	default:
		return
	}
	f.add(s, s.Pos(), "statement", "the statement deleted", replace, "")
}

func isPanic(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// breaks reports whether a break here ends the innermost loop, and whether the loop can
// also end otherwise: a function may not end after a loop that cannot.
func (f *file) breaks() bool {
	for i := len(f.parents) - 1; i >= 0; i-- {
		switch p := f.parents[i].(type) {
		case *ast.RangeStmt:
			return true
		case *ast.ForStmt:
			return p.Cond != nil
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt, *ast.FuncLit:
			return false
		}
	}
	return false
}

// earlyReturn adds a return at the start of a function and before each of its loops, if
// the function has no result, or only an error.
func (f *file) earlyReturn(typ *ast.FuncType, body *ast.BlockStmt) {
	if body == nil {
		return
	}
	alt := "return"
	if typ.Results.NumFields() > 0 {
		if typ.Results.NumFields() != 1 || !types.Identical(f.info.TypeOf(typ.Results.List[0].Type), types.Universe.Lookup("error").Type()) {
			return
		}
		alt = "return nil"
	}
	for i, s := range body.List {
		if i == 0 {
			if _, isReturn := s.(*ast.ReturnStmt); !isReturn {
				f.add(s, s.Pos(), "early return", alt+" at the start", before, alt)
			}
			continue
		}
		loop := s
		if l, ok := s.(*ast.LabeledStmt); ok {
			loop = l.Stmt
		}
		switch loop.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			f.add(s, s.Pos(), "early return", alt+" before the loop", before, alt)
		}
	}
}
