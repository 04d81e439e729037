package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
)

// wrongVariable replaces a variable by the local variable of the same type that was
// declared last before it.
func (f *file) wrongVariable(n *ast.Ident) {
	v, ok := f.info.Uses[n].(*types.Var)
	if !ok || v.IsField() || v.Parent() == f.pkg.Scope() || !f.isValue(n, v.Type()) {
		return
	}
	if other := f.otherVariable(n, v); other != nil {
		f.add(n, n.Pos(), "wrong variable", n.Name+" to "+other.Name(), pick, other.Name())
	}
}

func (f *file) otherVariable(n *ast.Ident, v *types.Var) (best types.Object) {
	scope := f.info.Scopes[f.tree].Innermost(n.Pos())
	for s := scope; s != nil && s != f.pkg.Scope(); s = s.Parent() {
		for _, name := range s.Names() {
			o, ok := s.Lookup(name).(*types.Var)
			if !ok || o == v || !types.Identical(o.Type(), v.Type()) {
				continue
			}
			if _, visible := scope.LookupParent(name, n.Pos()); visible == o && (best == nil || o.Pos() > best.Pos()) {
				best = o
			}
		}
	}
	return best
}

// wrongField replaces the field that an expression reads.
func (f *file) wrongField(n *ast.SelectorExpr) {
	t := f.info.TypeOf(n)
	if other := f.otherField(n); other != "" && f.isValue(n, t) {
		f.add(n, n.Pos(), "wrong field", f.text(n)+" to ."+other, pick, f.text(n.X)+"."+other)
	}
}

// assignedField replaces the field that a statement changes.
func (f *file) assignedField(s ast.Stmt, target ast.Expr) {
	n, ok := target.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if other := f.otherField(n); other != "" {
		src := string(f.src[f.offset(n.End()):f.offset(s.End())])
		f.add(s, s.Pos(), "wrong field", f.text(n)+" to ."+other, replace, f.text(n.X)+"."+other+src)
	}
}

// otherField returns the field of the same type that is nearest to the selected one.
func (f *file) otherField(n *ast.SelectorExpr) string {
	sel := f.info.Selections[n]
	if sel == nil || sel.Kind() != types.FieldVal || len(sel.Index()) != 1 || !isPure(n.X) {
		return ""
	}
	recv := sel.Recv().Underlying()
	if p, ok := recv.(*types.Pointer); ok {
		recv = p.Elem().Underlying()
	}
	fields, ok := recv.(*types.Struct)
	if !ok {
		return ""
	}
	at := sel.Index()[0]
	for distance := 1; distance < fields.NumFields(); distance++ {
		for _, i := range []int{at - distance, at + distance} {
			if i >= 0 && i < fields.NumFields() && f.replaces(fields.Field(i), sel.Obj()) {
				return fields.Field(i).Name()
			}
		}
	}
	return ""
}

// replaces reports whether the package may write one object for the other.
func (f *file) replaces(o, other types.Object) bool {
	return o.Name() != "_" && types.Identical(o.Type(), other.Type()) && (o.Exported() || o.Pkg() == f.pkg)
}

// isPure reports whether an expression may be evaluated twice.
func isPure(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident, *ast.BasicLit:
		return true
	case *ast.SelectorExpr:
		return isPure(e.X)
	case *ast.ParenExpr:
		return isPure(e.X)
	case *ast.StarExpr:
		return isPure(e.X)
	case *ast.IndexExpr:
		return isPure(e.X) && isPure(e.Index)
	}
	return false
}

// wrongConstant replaces a constant of a named type by the next one declared in the same
// package, or by the previous one. Durations are excluded: their size is seldom
// observable.
func (f *file) wrongConstant(n ast.Expr, id *ast.Ident, prefix string) {
	c, ok := f.info.Uses[id].(*types.Const)
	if !ok || c.Pkg() == nil || c.Parent() != c.Pkg().Scope() || c.Pkg().Path() == "time" || !f.isValue(n, c.Type()) {
		return
	}
	if _, isNamed := c.Type().(*types.Named); !isNamed {
		return
	}
	if other := f.otherConstant(c); other != nil {
		f.add(n, n.Pos(), "wrong constant", prefix+id.Name+" to "+other.Name(), pick, prefix+other.Name())
	}
}

func (f *file) otherConstant(c *types.Const) types.Object {
	var next, previous types.Object
	for _, name := range c.Pkg().Scope().Names() {
		o, ok := c.Pkg().Scope().Lookup(name).(*types.Const)
		if !ok || !f.replaces(o, c) || constant.Compare(o.Val(), token.EQL, c.Val()) {
			continue
		}
		if o.Pos() > c.Pos() && (next == nil || o.Pos() < next.Pos()) {
			next = o
		}
		if o.Pos() < c.Pos() && (previous == nil || o.Pos() > previous.Pos()) {
			previous = o
		}
	}
	if next == nil {
		return previous
	}
	return next
}

// isValue reports whether an expression of type t stands where its value may be
// computed: it is not assigned to, it need not have an address, and it is not a key that
// must be constant.
func (f *file) isValue(n ast.Expr, t types.Type) bool {
	child, base := n, true // base: child begins with n
	for i := len(f.parents) - 1; !f.targets[child]; i-- {
		if i < 0 {
			return true
		}
		switch p := f.parents[i].(type) {
		case ast.Stmt:
			return true
		case *ast.KeyValueExpr:
			if child == p.Key {
				return false
			}
			child, base = p, false
		case ast.Expr:
			if base && f.needsAddress(p, t) {
				return false
			}
			base = base && isBase(child, p)
			child, t = p, f.info.TypeOf(p)
		}
	}
	return false
}

// isBase reports whether p selects a part of an expression.
func isBase(e, p ast.Expr) bool {
	switch p := p.(type) {
	case *ast.SelectorExpr:
		return true
	case *ast.IndexExpr:
		return e == p.X
	}
	return false
}

// needsAddress reports whether p calls a method with a pointer receiver of its base, of
// type t, or slices an array.
func (f *file) needsAddress(p ast.Expr, t types.Type) bool {
	if _, isSlice := p.(*ast.SliceExpr); isSlice {
		_, isArray := t.Underlying().(*types.Array)
		return isArray
	}
	n, ok := p.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	sel := f.info.Selections[n]
	if sel == nil || sel.Kind() == types.FieldVal || types.IsInterface(t) {
		return false
	}
	if _, isPointer := t.Underlying().(*types.Pointer); isPointer {
		return false
	}
	_, onPointer := sel.Obj().(*types.Func).Signature().Recv().Type().(*types.Pointer)
	return onPointer
}
