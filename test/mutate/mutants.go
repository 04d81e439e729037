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
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d: `%s` `%s`", m.file, m.line, m.source, m.what)
}

// key is what docs/mutation.md calls a mutant: line numbers change too often.
func (m *mutant) key() string {
	return m.file + "|" + strings.ReplaceAll(m.source, "`", "'") + "|" + m.what
}

// mutants gives every mutant of the target's files.
func (t *target) mutants() ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(t.dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var out []mutant
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "doc.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		c := collector{file: file, fset: fset, src: src, lines: strings.Split(string(src), "\n")}
		ast.Inspect(tree, c.visit)
		out = append(out, c.out...)
	}
	return out, nil
}

// collector finds the mutants of one file.
type collector struct {
	file  string
	fset  *token.FileSet
	src   []byte
	lines []string
	out   []mutant
}

func (c *collector) add(from, to token.Pos, text, what string) {
	at := c.fset.Position(from)
	c.out = append(c.out, mutant{file: c.file, line: at.Line, source: strings.TrimSpace(c.lines[at.Line-1]), what: what,
		from: at.Offset, to: c.fset.Position(to).Offset, text: text})
}

func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
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
	for _, other := range others[n.Op] {
		c.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other, n.Op.String()+" to "+other)
	}
}

func (c *collector) condition(cond ast.Expr, what string) {
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return // inverted by its operator already
	}
	text := string(c.src[c.fset.Position(cond.Pos()).Offset:c.fset.Position(cond.End()).Offset])
	c.add(cond.Pos(), cond.End(), "!("+text+")", what)
}

func (c *collector) returned(r ast.Expr) {
	id, ok := r.(*ast.Ident)
	if !ok {
		return
	}
	if other, isBool := map[string]string{"true": "false", "false": "true"}[id.Name]; isBool {
		c.add(r.Pos(), r.End(), other, id.Name+" to "+other)
	}
}

// statement deletes what can be deleted without declaring less.
func (c *collector) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
	case *ast.BranchStmt:
		if s.Label != nil {
			return
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	default:
		return
	}
	c.add(s.Pos(), s.End(), "", "the statement deleted")
}
