package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file     string // below the module's root
	line     int
	source   string // the line, trimmed
	what     string // "< to <="
	from, to int    // bytes replaced
	text     string // by this
	id       int    // by which the binary of all mutants knows it; 0: it needs a build of its own
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: `%s` `%s`", m.file, m.line, m.source, m.what)
}

// key is what docs/mutation.md calls a mutant: line numbers change too often.
func (m *mutant) key() string {
	return m.file + "|" + strings.ReplaceAll(m.source, "`", "'") + "|" + m.what
}

// mutants gives every mutant of the target's files, and the files with all of them.
func (t *target) mutants() (out []mutant, together map[string]string, err error) {
	files, err := filepath.Glob(filepath.Join(t.dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	together = map[string]string{}
	next := 1
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "doc.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		c := collector{file: file, fset: fset, src: src, lines: strings.Split(string(src), "\n"), next: next, sites: map[ast.Node][]site{}}
		ast.Inspect(tree, c.visit)
		out = append(out, c.out...)
		together[file] = c.together(tree)
		next = c.next
	}
	return out, together, nil
}

// collector finds the mutants of one file.
type collector struct {
	file  string
	fset  *token.FileSet
	src   []byte
	lines []string
	next  int // the next id
	sites map[ast.Node][]site
	out   []mutant
}

// add adds a mutant. If it is of a kind that can be chosen while the program runs,
// it is made of node.
func (c *collector) add(from, to token.Pos, text, what string, node ast.Node, kind siteKind) {
	at := c.fset.Position(from)
	m := mutant{file: c.file, line: at.Line, source: strings.TrimSpace(c.lines[at.Line-1]), what: what,
		from: at.Offset, to: c.fset.Position(to).Offset, text: text}
	if kind != ownBuild {
		m.id = c.next
		c.next++
		c.sites[node] = append(c.sites[node], site{kind: kind, id: m.id, text: text})
	}
	c.out = append(c.out, m)
}

func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.BinaryExpr:
		c.operator(n)
	case *ast.IfStmt:
		c.condition(n.Cond, "the condition inverted")
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			c.returned(r)
		}
	case *ast.BlockStmt:
		for _, s := range n.List {
			c.statement(s)
		}
	case *ast.CaseClause:
		for _, s := range n.Body {
			c.statement(s)
		}
	}
	return true
}

func (c *collector) operator(n *ast.BinaryExpr) {
	others := map[token.Token][]string{
		token.EQL: {"!="}, token.NEQ: {"=="}, token.LSS: {"<=", ">"}, token.LEQ: {"<", ">="}, token.GTR: {">=", "<"}, token.GEQ: {">", "<="},
		token.LAND: {"||"}, token.LOR: {"&&"}, token.ADD: {"-"}, token.SUB: {"+"},
	}
	kind := operatorSite
	if n.Op == token.ADD || n.Op == token.SUB { // of what type, only the compiler knows
		kind = ownBuild
	}
	for _, other := range others[n.Op] {
		c.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other, n.Op.String()+" to "+other, n, kind)
	}
}

func (c *collector) condition(cond ast.Expr, what string) {
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return // inverted by its operator already
	}
	text := string(c.src[c.fset.Position(cond.Pos()).Offset:c.fset.Position(cond.End()).Offset])
	c.add(cond.Pos(), cond.End(), "!("+text+")", what, cond, conditionSite)
}

func (c *collector) returned(r ast.Expr) {
	id, ok := r.(*ast.Ident)
	if !ok {
		return
	}
	if other, isBool := map[string]string{"true": "false", "false": "true"}[id.Name]; isBool {
		c.add(r.Pos(), r.End(), other, id.Name+" to "+other, r, valueSite)
	}
}

// statement deletes what can be deleted without declaring less.
func (c *collector) statement(s ast.Stmt) {
	kind := statementSite
	switch s := s.(type) {
	case *ast.IncDecStmt, *ast.DeferStmt:
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && isPanic(call) { // a function may end with it
			kind = ownBuild
		}
	case *ast.BranchStmt:
		if s.Label != nil {
			return
		}
		if s.Tok == token.FALLTHROUGH {
			kind = ownBuild
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	default:
		return
	}
	c.add(s.Pos(), s.End(), "", "the statement deleted", s, kind)
}

func isPanic(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}
