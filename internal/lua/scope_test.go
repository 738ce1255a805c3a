package lua_test

import (
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/luatx/luatx/internal/test/assert"
)

// names are the names that a file defines at its outermost level, and those that it uses without defining them. A name
// with a sigil begins with an underscore.
type names struct {
	defined, free map[string]bool
	scopes        []map[string]bool
}

func namesOf(t *testing.T, file, text string) *names {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(strings.ReplaceAll(text, "@", "_")), file)
	assert.Must(t, err)
	n := &names{defined: map[string]bool{}, free: map[string]bool{}}
	n.scopes = []map[string]bool{n.defined}
	for _, stmt := range chunk {
		n.stmt(stmt)
	}
	return n
}

func (n *names) define(name string) { n.scopes[len(n.scopes)-1][name] = true }

func (n *names) use(name string) {
	for _, scope := range n.scopes {
		if scope[name] {
			return
		}
	}
	n.free[name] = true
}

func (n *names) block(stmts []ast.Stmt, params ...string) {
	n.scopes = append(n.scopes, map[string]bool{})
	for _, p := range params {
		n.define(p)
	}
	for _, s := range stmts {
		n.stmt(s)
	}
	n.scopes = n.scopes[:len(n.scopes)-1]
}

func (n *names) stmt(stmt ast.Stmt) {
	switch s := stmt.(type) {
	case *ast.LocalAssignStmt:
		if len(s.Exprs) == 1 {
			if _, function := s.Exprs[0].(*ast.FunctionExpr); function {
				n.define(s.Names[0]) // it may call itself
			}
		}
		n.exprs(s.Exprs...)
		for _, name := range s.Names {
			n.define(name)
		}
	case *ast.AssignStmt:
		n.exprs(append(s.Lhs, s.Rhs...)...)
	case *ast.FuncCallStmt:
		n.exprs(s.Expr)
	case *ast.DoBlockStmt:
		n.block(s.Stmts)
	case *ast.WhileStmt:
		n.exprs(s.Condition)
		n.block(s.Stmts)
	case *ast.RepeatStmt:
		n.block(append(s.Stmts, &ast.ReturnStmt{Exprs: []ast.Expr{s.Condition}}))
	case *ast.IfStmt:
		n.exprs(s.Condition)
		n.block(s.Then)
		n.block(s.Else)
	case *ast.NumberForStmt:
		n.exprs(s.Init, s.Limit, s.Step)
		n.block(s.Stmts, s.Name)
	case *ast.GenericForStmt:
		n.exprs(s.Exprs...)
		n.block(s.Stmts, s.Names...)
	case *ast.FuncDefStmt:
		n.exprs(s.Name.Func, s.Name.Receiver, s.Func)
	case *ast.ReturnStmt:
		n.exprs(s.Exprs...)
	}
}

func (n *names) exprs(exprs ...ast.Expr) {
	for _, expr := range exprs {
		switch e := expr.(type) {
		case *ast.IdentExpr:
			n.use(e.Value)
		case *ast.AttrGetExpr:
			n.exprs(e.Object, e.Key)
		case *ast.TableExpr:
			for _, f := range e.Fields {
				n.exprs(f.Key, f.Value)
			}
		case *ast.FuncCallExpr:
			n.exprs(append([]ast.Expr{e.Func, e.Receiver}, e.Args...)...)
		case *ast.FunctionExpr:
			n.block(e.Stmts, e.ParList.Names...)
		case *ast.LogicalOpExpr:
			n.exprs(e.Lhs, e.Rhs)
		case *ast.RelationalOpExpr:
			n.exprs(e.Lhs, e.Rhs)
		case *ast.StringConcatOpExpr:
			n.exprs(e.Lhs, e.Rhs)
		case *ast.ArithmeticOpExpr:
			n.exprs(e.Lhs, e.Rhs)
		case *ast.UnaryMinusOpExpr:
			n.exprs(e.Expr)
		case *ast.UnaryNotOpExpr:
			n.exprs(e.Expr)
		case *ast.UnaryLenOpExpr:
			n.exprs(e.Expr)
		}
	}
}
