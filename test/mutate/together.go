package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// One binary holds all mutants that can be chosen while it runs: to build the tests
// anew for each mutant takes far longer than to run them.

// siteKind is in what way a node of the source is changed.
type siteKind uint8

const (
	ownBuild siteKind = iota // it is not; the mutant is built by itself
	operatorSite
	conditionSite
	valueSite
	statementSite
)

// site is one mutant of a node.
type site struct {
	kind siteKind
	id   int
	text string // the other operator
}

// chosenEnv names the mutant that a binary of all mutants is.
const chosenEnv = "FAIRLEAD_MUTANT"

// chooser is what each mutated package has besides.
const chooser = `

var mutantChosen = func() int { n, _ := strconv.Atoi(os.Getenv("` + chosenEnv + `")); return n }()

func mutated(id int) bool { return id == mutantChosen }
`

func chooserOf(name string) string {
	return "package " + name + "\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)" + chooser
}

// together gives the source with every mutant that can be chosen.
func (c *collector) together(n ast.Node) string {
	sites := c.sites[n]
	text := ""
	if b, ok := n.(*ast.BinaryExpr); ok && slices.ContainsFunc(sites, func(s site) bool { return s.kind == operatorSite }) {
		text = c.operators(b, sites)
	} else {
		text = c.inside(n)
	}
	for _, s := range sites {
		switch s.kind {
		case conditionSite:
			text = fmt.Sprintf("((%s) != mutated(%d))", text, s.id)
		case valueSite:
			text = fmt.Sprintf("(%s != mutated(%d))", text, s.id)
		case statementSite:
			text = fmt.Sprintf("if !mutated(%d) {\n%s\n}", s.id, text)
		}
	}
	return text
}

// operators gives a comparison, or a logical operation, with its other operators.
func (c *collector) operators(n *ast.BinaryExpr, sites []site) string {
	x, y := c.together(n.X), c.together(n.Y)
	var out strings.Builder
	out.WriteString("(func() bool {\n")
	for _, s := range sites {
		if s.kind == operatorSite {
			fmt.Fprintf(&out, "if mutated(%d) {\nreturn %s %s %s\n}\n", s.id, x, s.text, y)
		}
	}
	fmt.Fprintf(&out, "return %s %s %s\n}())", x, n.Op, y)
	return out.String()
}

// inside gives the source of a node, with the mutants of what is in it.
func (c *collector) inside(n ast.Node) string {
	var changed []ast.Node
	ast.Inspect(n, func(d ast.Node) bool {
		if d == nil || d == n || len(c.sites[d]) == 0 {
			return true
		}
		changed = append(changed, d)
		return false
	})
	slices.SortFunc(changed, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	from, to := c.fset.Position(n.Pos()).Offset, c.fset.Position(n.End()).Offset
	if _, isFile := n.(*ast.File); isFile {
		from, to = 0, len(c.src)
	}
	var out strings.Builder
	for _, d := range changed {
		out.Write(c.src[from:c.fset.Position(d.Pos()).Offset])
		out.WriteString(c.together(d))
		from = c.fset.Position(d.End()).Offset
	}
	out.Write(c.src[from:to])
	return out.String()
}
