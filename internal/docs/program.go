package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/luatx/luatx"

// packages maps names that blocks may use without an import to import paths.
var packages = byName(
	"context", "errors", "fmt", "log", "os", "strings", "strconv", "sync", "syscall", "testing", "time",
	"encoding/json", "net/http", "net/http/httptest", "database/sql", "os/signal", "log/slog",
	module, module+"/message", module+"/inbox", module+"/outbox", module+"/relay", module+"/relay/cehttp", module+"/repair", module+"/stream",
	module+"/stack", module+"/expiry", module+"/trigger", module+"/sqltx", module+"/admin", module+"/admin/console", module+"/admin/httpapi", module+"/luatxtest", module+"/idempotency", module+"/service",
	module+"/contrib/watermill", module+"/contrib/nats", module+"/contrib/amqp", "github.com/nats-io/nats.go/jetstream",
)

func byName(paths ...string) map[string]string {
	names := map[string]string{"redis": "github.com/redis/go-redis/v9", "miniredis": "github.com/alicebob/miniredis/v2"}
	for _, p := range paths {
		names[path.Base(p)] = p
	}
	return names
}

// The marks of the blocks that the tests run or compile.
const (
	Run   = "go run"
	Build = "go build"
)

// Marked reports whether the tests compile a block, and whether they also run it.
func (b Block) Marked() (build, run bool) {
	return b.Info == Run || b.Info == Build, b.Info == Run
}

// Output returns the output that a block documents, with the space around each line removed. It returns false if the
// block documents none.
func (b Block) Output() (string, bool) {
	_, comment, ok := strings.Cut(b.Text, "// Output:")
	if !ok {
		return "", false
	}
	var lines []string
	for line := range strings.Lines(comment) {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//")))
	}
	return strings.TrimSpace(strings.Join(lines, "\n")), true
}

// Program returns the Go source of a block without the package clause. If the block is a whole program, its main
// becomes Main. Any other block becomes the body of the function name(t, ctx, client, transactor), which calls prepare
// first. Errors of the compiler refer to page. shared holds the names that the package's other files declare for the
// page.
func Program(name, prepare, page string, block Block, shared map[string]bool) (string, error) {
	text := strings.ReplaceAll(strings.ReplaceAll(block.Text, "error { … }", "error { return nil }"), "{ … }", "{}")
	if block.whole() {
		_, text, _ = strings.Cut(text, "\n")
		return fmt.Sprintf("\n//line %s:%d\n", page, block.Line+1) + strings.Replace(text, "\nfunc main() {", "\nfunc Main() {", 1), nil
	}
	at := fmt.Sprintf("\n//line %s:%d\n", page, block.Line)
	declared, statements := split(text)
	body, err := instrument(statements)
	if err != nil {
		return "", fmt.Errorf("%s:%d: %w", page, block.Line, err)
	}
	code := at + declared + "\nfunc " + name + "(t_ *testing.T, ctx_ context.Context, client_ *redis.Client, transactor_ *luatx.Transactor) {\n" +
		"t, ctx, client, transactor = t_, ctx_, client_, transactor_\n" + prepare + "()\n{" + at + body + "\n}\n}\n"
	imports, err := imported(code, shared)
	if err != nil {
		return "", fmt.Errorf("%s:%d: %w", page, block.Line, err)
	}
	return imports + code, nil
}

// Common is the code that every package of blocks contains.
const Common = `
import ("context"; "testing"; "github.com/redis/go-redis/v9"; "github.com/luatx/luatx")

var (
	t          *testing.T
	ctx        context.Context
	client     *redis.Client
	transactor *luatx.Transactor
	err        error
)

func none() {}

func must_(err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
`

// Names returns the names that a file declares for its package, and the names that it needs from other files and
// packages.
func Names(source string) (declares, needs map[string]bool, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	if err != nil {
		return nil, nil, err
	}
	declares, needs = map[string]bool{}, map[string]bool{}
	for name := range file.Scope.Objects {
		declares[name] = true
	}
	for _, ident := range file.Unresolved {
		needs[ident.Name] = true
	}
	return declares, needs, nil
}

// whole reports whether a block is a whole program.
func (b Block) whole() bool { return strings.HasPrefix(b.Text, "package main\n") }

// top matches the first line of a declaration.
var top = regexp.MustCompile(`^(func (\([^)]*\) )?\w+[\[(]|type \w+|type \(|const |import )`)

// split separates declarations at the left margin from statements. Each result keeps the line numbers of its code,
// because empty lines replace the rest.
func split(text string) (declared, statements string) {
	var outside, inside strings.Builder
	declaring := false
	for line := range strings.Lines(text) {
		starts := top.MatchString(line)
		into, other := &inside, &outside
		if declaring || starts {
			into, other = &outside, &inside
		}
		into.WriteString(line)
		other.WriteString("\n")
		code, _, _ := strings.Cut(line, " //")
		switch trimmed := strings.TrimSpace(code); {
		case declaring:
			declaring = !strings.HasPrefix(line, "}") && !strings.HasPrefix(line, ")")
		case starts:
			declaring = strings.HasSuffix(trimmed, "{") || strings.HasSuffix(trimmed, "(")
		}
	}
	return outside.String(), inside.String()
}

// instrument uses every variable that the statements define, and ends the block at an error that the next statement
// does not check.
func instrument(statements string) (string, error) {
	const before = "package p\nfunc f() {\n"
	source := before + statements + "\n}\n"
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	insert := map[int]string{}
	add := func(at token.Pos, text string) { insert[set.Position(at).Offset] += text }
	outer := file.Decls[0].(*ast.FuncDecl).Body
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Body.Lbrace+1, used(n.Key, n.Value))
			}
		case *ast.BlockStmt:
			for i, statement := range n.List {
				assign, ok := statement.(*ast.AssignStmt)
				if !ok {
					continue
				}
				if assign.Tok == token.DEFINE {
					add(assign.End(), "; "+used(assign.Lhs...))
				}
				if n == outer && assigns(assign, "err") && (i+1 == len(n.List) || !looksAt(n.List[i+1], "err")) {
					add(assign.End(), "; must_(err)")
				}
			}
		}
		return true
	})
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(insert))) {
		source = source[:at] + insert[at] + source[at:]
	}
	return strings.TrimSuffix(strings.TrimPrefix(source, before), "\n}\n"), nil
}

// used returns a statement that uses the variables.
func used(variables ...ast.Expr) string {
	var names []string
	for _, v := range variables {
		if name, ok := v.(*ast.Ident); ok && name.Name != "_" {
			names = append(names, name.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Repeat("_, ", len(names)-1) + "_ = " + strings.Join(names, ", ") + ";"
}

func assigns(statement *ast.AssignStmt, name string) bool {
	return slices.ContainsFunc(statement.Lhs, func(e ast.Expr) bool {
		ident, ok := e.(*ast.Ident)
		return ok && ident.Name == name
	})
}

// looksAt reports whether a statement other than an assignment names the variable.
func looksAt(statement ast.Stmt, name string) bool {
	if _, ok := statement.(*ast.AssignStmt); ok {
		return false
	}
	found := false
	ast.Inspect(statement, func(n ast.Node) bool {
		ident, ok := n.(*ast.Ident)
		found = found || ok && ident.Name == name
		return !found
	})
	return found
}

// imported returns the import declarations for all packages that the code names.
func imported(code string, shared map[string]bool) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0)
	if err != nil {
		return "", err
	}
	unresolved := map[*ast.Ident]bool{}
	for _, ident := range file.Unresolved {
		unresolved[ident] = true
	}
	needed := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && unresolved[name] && !shared[name.Name] {
				if from, ok := packages[name.Name]; ok {
					needed[from] = true
				}
			}
		}
		return true
	})
	var b strings.Builder
	for _, from := range slices.Sorted(maps.Keys(needed)) { // sorted, so that the go command can reuse its cached build
		fmt.Fprintf(&b, "import %q\n", from)
	}
	return b.String(), nil
}
