package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// loggers maps methods that log to the number of arguments before their keys and values.
var loggers = map[string]int{
	"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "DebugContext": 2, "InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "With": 0,
}

// logKeys returns the keys that a file logs.
func logKeys(file *ast.File) (keys []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		keys = append(keys, listedKeys(n)...)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := method.X.(*ast.Ident); ok && of.Name == "slog" && len(call.Args) == 2 {
			if key, ok := text(call.Args[0]); ok {
				keys = append(keys, key)
			}
			return true
		}
		before, ok := loggers[method.Sel.Name]
		if !ok || len(call.Args) <= before || before > 0 && !isText(call.Args[before-1]) {
			return true
		}
		keys = append(keys, pairs(call.Args[before:])...)
		return true
	})
	return keys
}

// listedKeys returns the keys of a list that another line logs. Such a list is assigned to about, or returned by a
// method named subject.
func listedKeys(n ast.Node) (keys []string) {
	add := func(values []ast.Expr) {
		for _, value := range values {
			if list, ok := value.(*ast.CompositeLit); ok {
				keys = append(keys, pairs(list.Elts)...)
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if to, ok := n.Lhs[0].(*ast.Ident); ok && to.Name == "about" {
			add(n.Rhs)
		}
	case *ast.FuncDecl:
		if n.Name.Name == "subject" && n.Body != nil {
			ast.Inspect(n.Body, func(in ast.Node) bool {
				if r, ok := in.(*ast.ReturnStmt); ok {
					add(r.Results)
				}
				return true
			})
		}
	}
	return keys
}

func pairs(args []ast.Expr) (keys []string) {
	for i := 0; i+1 < len(args); i += 2 {
		if key, ok := text(args[i]); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(literal.Value)
	return s, err == nil
}

func isText(e ast.Expr) bool {
	_, ok := text(e)
	return ok
}

func TestLogKeysAreFound(t *testing.T) {
	t.Parallel()
	const source = `package p
func f() {
	log.With("a", 1).Error("text", "b", 2, "error", err)
	cfg.Logger.WarnContext(ctx, "text", "c", 3)
	log.LogAttrs(ctx, level, "text", slog.String("d", "x"))
	log.Warn("text", about...)
	mark.With(ctx, kind)
	err.Error()
	about := []any{"e", 1}
}
func (p) subject() []any { return []any{"f", 1, "g", 2} }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	assert.Must(t, err)
	keys := logKeys(file)
	slices.Sort(keys)
	assert.Equal(t, strings.Join(keys, " "), "a b c d e error f g", "the keys")
}

func TestPageListsExactlyTheKeysThatTheLibraryLogs(t *testing.T) {
	t.Parallel()
	logged := make(map[string]string) // the file that logs each key
	for _, name := range trackedFiles(t, ".go") {
		tool := slices.ContainsFunc(append([]string{"bench", "matrix", "torture", "sqltx/sqltest"}, tools...),
			func(tree string) bool { return inTree(name, tree) })
		if tool || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
		assert.Must(t, err)
		for _, key := range logKeys(file) {
			logged[key] = name
		}
	}
	documented := make(map[string]bool)
	_, section, _ := strings.Cut(read(t, "docs/observability.md"), "\n## Log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[key[1]] = true
		}
	}
	for key, file := range logged {
		if !documented[key] {
			t.Errorf("%s logs the key %q, which docs/observability.md does not have", file, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(documented)) {
		if _, is := logged[key]; !is {
			t.Errorf("docs/observability.md has the key %q, which nothing logs", key)
		}
	}
}
