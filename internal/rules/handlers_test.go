package rules

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// isHandlerFile says whether a file of the demo or of an example is one that a user would write handlers in.
func isHandlerFile(name string) bool {
	inProgram := strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "examples/")
	base := path.Base(name)
	return inProgram && strings.HasPrefix(base, "handler") && strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go")
}

// knowsStore matches clients and drivers of Redis and of SQL databases.
var knowsStore = regexp.MustCompile(`redis|sql|pgx|lib/pq|maria|gorm`)

// handlerProblems names the imports by which a handler file would know where its state lives: a client of Redis or of an
// SQL database, or a package of the project that is neither message nor of the program's own tree.
func handlerProblems(name, source string) []string {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
	if err != nil {
		return []string{err.Error()}
	}
	program := strings.Join(strings.SplitN(name, "/", 3)[:2], "/")
	var problems []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{fmt.Sprintf("%s: import %s: %v", name, spec.Path.Value, err)}
		}
		pkg, own := relative(imported)
		allowed := inTree(pkg, "message") || inTree(pkg, program)
		if own && !allowed || !own && knowsStore.MatchString(imported) {
			problems = append(problems, fmt.Sprintf("%s imports %s: a handler takes what it needs as an interface", name, imported))
		}
	}
	return problems
}

func TestHandlerProblems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		imported, want string
	}{
		{module + "/message", ""},
		{module + "/message/middleware", ""},
		{module + "/cmd/luatx/internal/domain", ""},
		{"context", ""},
		{module, "imports " + module},
		{module + "/outbox", "imports " + module + "/outbox"},
		{module + "/cmd/other/internal/domain", "imports " + module + "/cmd/other"},
		{goRedis, "imports " + goRedis},
		{"github.com/gomodule/redigo/redis", "redigo"},
		{"database/sql", "imports database/sql"},
		{"github.com/jackc/pgx/v5/pgxpool", "pgx"},
		{module + "/sqltx", "imports " + module + "/sqltx"},
	}
	for _, test := range tests {
		t.Run(test.imported, func(t *testing.T) {
			t.Parallel()
			source := fmt.Sprintf("package shop\n\nimport %q\n", test.imported)
			wantProblem(t, handlerProblems("cmd/luatx/internal/shop/handlers.go", source), test.want)
		})
	}
	wantProblem(t, handlerProblems("examples/handler.go", "not Go"), "expected 'package'")
}

func TestHandlersKnowNoStore(t *testing.T) {
	t.Parallel()
	files := trackedFiles(t, ".go")
	handlers := 0
	for _, name := range files {
		if isHandlerFile(name) {
			handlers++
			report(t, handlerProblems(name, read(t, name)))
		}
	}
	inCommand := func(name string) bool { return strings.HasPrefix(name, "cmd/luatx/") }
	if handlers == 0 && slices.ContainsFunc(files, inCommand) {
		t.Error("the demo has no file handler*.go: its handlers must stand in one, free of Redis and SQL")
	}
}
