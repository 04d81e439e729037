package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// form is how the overlay expresses a mutant at its node.
type form uint8

const (
	flip    form = iota // a boolean expression, inverted
	either              // a boolean expression, or alt
	pick                // an expression without side effects, or alt of the same type
	wrap                // the expression, passed through the helper alt
	operand             // the operands, passed to the helper alt
	replace             // a statement, or alt
	before              // alt, then the statement
)

// site is one mutant at a node of the syntax tree.
type site struct {
	id   int
	form form
	alt  string
}

// chosenEnv is the environment variable that chooses the mutant of a binary.
const chosenEnv = "FAIRLEAD_MUTANT"

// helpers is the source of the file that each mutated package has in addition.
const helpers = `
import (
	"cmp"
	"os"
	"strconv"
)

var mutantChosen = func() int { n, _ := strconv.Atoi(os.Getenv("` + chosenEnv + `")); return n }()

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantIs(id int) bool { return id == mutantChosen }

func mutantPick[T any](id int, a, b T) T {
	if mutantIs(id) {
		return b
	}
	return a
}

func mutantZero[T any](id int, v T) T {
	var zero T
	return mutantPick(id, v, zero)
}

func mutantFirst[S ~[]E, E any](id int, s S) S {
	if mutantIs(id) && len(s) > 1 {
		return s[:1]
	}
	return s
}

func mutantAdd[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a + b
	}
	return a - b
}

func mutantMin[T cmp.Ordered](id int, first T, rest ...T) T {
	for _, v := range rest {
		if mutantIs(id) {
			first = max(first, v)
		} else {
			first = min(first, v)
		}
	}
	return first
}

func mutantMax[T cmp.Ordered](id int, first T, rest ...T) T {
	for _, v := range rest {
		if mutantIs(id) {
			first = min(first, v)
		} else {
			first = max(first, v)
		}
	}
	return first
}
`

// overlay returns the source of a file with its mutants, without the removed ones.
func (f *file) overlay(removed map[int]bool) string {
	o := overlay{file: f, removed: removed}
	return o.inside(f.tree)
}

type overlay struct {
	*file
	removed map[int]bool
}

func (o *overlay) sitesOf(n ast.Node) (out []site) {
	for _, s := range o.sites[n] {
		if !o.removed[s.id] {
			out = append(out, s)
		}
	}
	return out
}

// node returns the source of a node with the mutants of itself and its children.
func (o *overlay) node(n ast.Node) string {
	sites := o.sitesOf(n)
	text := o.innermost(n, sites)
	for _, s := range sites {
		switch s.form {
		case flip:
			text = fmt.Sprintf("((%s) != mutantIs(%d))", text, s.id)
		case pick:
			text = fmt.Sprintf("mutantPick(%d, %s, %s)", s.id, text, s.alt)
		case wrap:
			text = fmt.Sprintf("%s(%d, %s)", s.alt, s.id, text)
		case replace:
			text = fmt.Sprintf("if mutantIs(%d) { %s } else { %s }", s.id, s.alt, text)
		case before:
			text = fmt.Sprintf("if mutantIs(%d) { %s }; %s", s.id, s.alt, text)
		}
	}
	return text
}

// innermost returns the source of a node with the mutants that change its operator, and
// those of its children.
func (o *overlay) innermost(n ast.Node, sites []site) string {
	var alternatives strings.Builder
	for _, s := range sites {
		switch s.form {
		case operand:
			var args strings.Builder
			for _, arg := range operandsOf(n) {
				args.WriteString(", " + o.node(arg))
			}
			return fmt.Sprintf("%s(%d%s)", s.alt, s.id, args.String())
		case either:
			fmt.Fprintf(&alternatives, "if mutantIs(%d) { return %s }\n", s.id, s.alt)
		}
	}
	if alternatives.Len() == 0 {
		return o.inside(n)
	}
	return "(func() bool {\n" + alternatives.String() + "return " + o.inside(n) + "\n}())"
}

func operandsOf(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return []ast.Expr{n.X, n.Y}
	case *ast.CallExpr:
		return n.Args
	}
	return nil
}

// inside returns the source of a node with the mutants of its children.
func (o *overlay) inside(n ast.Node) string {
	var changed []ast.Node
	ast.Inspect(n, func(d ast.Node) bool {
		if d == nil || d == n || len(o.sitesOf(d)) == 0 {
			return true
		}
		changed = append(changed, d)
		return false
	})
	slices.SortFunc(changed, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	from, to := o.offset(n.Pos()), o.offset(n.End())
	if n == ast.Node(o.tree) {
		from, to = 0, len(o.src)
	}
	var out strings.Builder
	for _, d := range changed {
		out.Write(o.src[from:o.offset(d.Pos())])
		out.WriteString(o.node(d))
		from = o.offset(d.End())
	}
	out.Write(o.src[from:to])
	return out.String()
}
