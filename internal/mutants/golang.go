package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// goMutants returns the mutants of a Go file. Some do not compile; the runner draws others in their place.
func goMutants(file, text string) ([]mutant, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &goFinder{file: file, text: text, set: set}
	ast.Inspect(parsed, g.visit)
	return g.found, nil
}

type goFinder struct {
	file, text string
	set        *token.FileSet
	found      []mutant
}

func (g *goFinder) offset(p token.Pos) int { return g.set.Position(p).Offset }

func (g *goFinder) source(n ast.Node) string { return g.text[g.offset(n.Pos()):g.offset(n.End())] }

func (g *goFinder) replace(op string, n ast.Node, with string) {
	g.found = append(g.found, mutant{file: g.file, op: op, text: g.text, start: g.offset(n.Pos()), end: g.offset(n.End()), with: with})
}

func (g *goFinder) insert(op string, p token.Pos, text string) {
	g.found = append(g.found, mutant{file: g.file, op: op, text: g.text, start: g.offset(p), end: g.offset(p), with: text})
}

var goSwaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD,
}

func (g *goFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR || n.Tok == token.TYPE || n.Tok == token.CONST && !g.constants(n)
	case *ast.FuncDecl:
		if n.Name.Name == "String" || n.Name.Name == "Error" || n.Name.Name == "LogValue" {
			return false // only the wording of a message
		}
		if n.Body != nil && n.Type.Results == nil && len(n.Body.List) > 0 {
			g.insert("return early", n.Body.Lbrace+1, " if true { return };")
		}
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.IfStmt:
		if cond, ok := n.Cond.(*ast.BinaryExpr); !ok || cond.Op != token.EQL && cond.Op != token.NEQ {
			g.replace("negate a condition", n.Cond, "!("+g.source(n.Cond)+")")
		}
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 0, 62); err == nil {
			g.replace("shift a number", n, strconv.FormatInt(value+1, 10))
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !wording(call) {
			g.drop("drop a call", n, call)
		}
	case *ast.DeferStmt:
		g.drop("drop a defer", n, n.Call)
	case *ast.ReturnStmt:
		g.returned(n)
	case *ast.CallExpr:
		return g.call(n)
	}
	return true
}

// constants replaces the values of named numbers. A bound of 5 s that is 6 s is no bug, but one of 0 is. It returns false if the
// values depend on their places.
func (g *goFinder) constants(decl *ast.GenDecl) bool {
	if strings.Contains(g.source(decl), "iota") {
		return false
	}
	for _, spec := range decl.Specs {
		values, _ := spec.(*ast.ValueSpec)
		for _, value := range values.Values {
			if with := "0"; hasNumber(value) {
				if g.source(value) == with {
					with = "1"
				}
				g.replace("replace a default", value, with)
			}
		}
	}
	return true
}

func hasNumber(value ast.Expr) (found bool) {
	ast.Inspect(value, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		found = found || ok && (lit.Kind == token.INT || lit.Kind == token.FLOAT)
		return true
	})
	return found
}

func (g *goFinder) binary(n *ast.BinaryExpr) {
	with, ok := goSwaps[n.Op]
	if !ok || n.Op == token.ADD && (isText(n.X) || isText(n.Y)) {
		return
	}
	g.found = append(g.found, mutant{
		file: g.file, op: "swap " + n.Op.String(), text: g.text,
		start: g.offset(n.OpPos), end: g.offset(n.OpPos) + len(n.Op.String()), with: with.String(),
	})
}

func isText(n ast.Expr) bool {
	lit, ok := n.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}

// drop replaces a call by uses of its operands, so that imports and variables stay used.
func (g *goFinder) drop(op string, n ast.Node, call *ast.CallExpr) {
	uses := []string{}
	switch callee := call.Fun.(type) {
	case *ast.SelectorExpr:
		uses = append(uses, g.source(callee))
	case *ast.FuncLit:
		g.replace(op, n, "")
		return
	}
	for _, arg := range call.Args {
		if _, literal := arg.(*ast.BasicLit); !literal && g.source(arg) != "nil" {
			uses = append(uses, g.source(arg))
		}
	}
	if len(uses) == 0 {
		g.replace(op, n, "")
		return
	}
	g.replace(op, n, strings.Repeat("_, ", len(uses)-1)+"_ = "+strings.Join(uses, ", "))
}

// returned makes a return statement drop its error.
func (g *goFinder) returned(n *ast.ReturnStmt) {
	if len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	text := g.source(last)
	switch {
	case text == "err", strings.HasPrefix(text, "Err"), strings.HasPrefix(text, "err") && !strings.Contains(text, "("):
		g.replace("drop an error", last, "nil")
	case strings.HasPrefix(text, "fmt.Errorf("), strings.HasPrefix(text, "errors.New("):
		g.insert("drop an error", last.Pos(), "nil; _ = ")
		// `return x, nil; _ = fmt.Errorf(…)` still uses the import and the operands.
	}
}

func (g *goFinder) call(n *ast.CallExpr) bool {
	switch name := callee(n); {
	case name == "context.WithoutCancel" && len(n.Args) == 1:
		g.replace("drop WithoutCancel", n, g.source(n.Args[0]))
	case name == "min" || name == "max": // the order of the arguments does not matter
		if len(n.Args) == 2 {
			g.replace("drop a bound", n, g.source(n.Args[0]))
			g.replace("drop a bound", n, g.source(n.Args[1]))
		}
		return true
	case name == "make":
		return false // only a capacity
	}
	if wording(n) {
		return false
	}
	for i := 1; i < len(n.Args); i++ {
		a, b := n.Args[i-1], n.Args[i]
		if one, two := g.source(a), g.source(b); one != two && sameKind(a, b) {
			g.found = append(g.found, mutant{
				file: g.file, op: "swap two arguments", text: g.text,
				start: g.offset(a.Pos()), end: g.offset(b.End()), with: two + ", " + one,
			})
		}
	}
	return true
}

func sameKind(a, b ast.Expr) bool {
	switch a := a.(type) {
	case *ast.Ident:
		_, ok := b.(*ast.Ident)
		return ok
	case *ast.SelectorExpr:
		_, ok := b.(*ast.SelectorExpr)
		return ok
	case *ast.BasicLit:
		other, ok := b.(*ast.BasicLit)
		return ok && other.Kind == a.Kind
	}
	return false
}

func callee(n *ast.CallExpr) string {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

// wording reports whether a call only words a log line or an error.
func wording(n *ast.CallExpr) bool {
	name := callee(n)
	if strings.HasPrefix(name, "slog.") || name == "fmt.Errorf" || name == "errors.New" || name == "fmt.Sprintf" {
		return true
	}
	_, method, _ := strings.Cut(name, ".")
	switch method {
	case "Debug", "Info", "Warn", "Error", "Log", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "LogAttrs":
		return len(n.Args) > 0
	}
	return false
}
