package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// sleepProblems finds calls of time.Sleep in a test outside of a synctest bubble, where they take no time. Outside of
// bubbles, tests wait for a condition. The name of a helper that opens a bubble begins with inBubble.
func sleepProblems(name, source string) []string {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		switch {
		case !ok:
			return true
		case isCall(call, "synctest", "Test") || isLocal(call, "inBubble"):
			return false
		case isCall(call, "time", "Sleep"):
			problems = append(problems, fmt.Sprintf("%s sleeps: wait for a condition, or run in a synctest bubble", set.Position(call.Pos())))
		}
		return true
	})
	return problems
}

func isLocal(call *ast.CallExpr, prefix string) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && strings.HasPrefix(name.Name, prefix)
}

func isCall(call *ast.CallExpr, pkg, function string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != function {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == pkg
}

func TestSleepsAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, want string
	}{
		{"plain", "time.Sleep(1)", "a_test.go:2:17 sleeps"},
		{"in a goroutine", "go func() { time.Sleep(1) }()", "sleeps"},
		{"in a bubble", "synctest.Test(t, func(t *testing.T) { time.Sleep(1) })", ""},
		{"in a helper's bubble", "inBubble(t, 1, func() { time.Sleep(1) })", ""},
		{"another Sleep", "backoff.Sleep(1)", ""},
		{"another Test", "other.Test(func() { time.Sleep(1) })", "sleeps"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, sleepProblems("a_test.go", "package a\nfunc TestIt() { "+test.body+" }\n"), test.want)
		})
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for _, name := range trackedFiles(t, "_test.go") {
		report(t, sleepProblems(name, read(t, name)))
	}
}
