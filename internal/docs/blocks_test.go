package docs

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var root = filepath.Join("..", "..")

// pages are the pages whose blocks are looked at.
func pages(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	return append(names, filepath.Join(root, "README.md"))
}

// A suite is a tree of files for `go test -overlay`: a package for each page with marked blocks, one for each whole
// program, and a test that runs them.
type suite struct {
	dir     string
	files   map[string]string // what the go command sees → what is there
	imports []string
	blocks  []string // lines of the test's table
	built   int      // blocks that are compiled only
}

var notName = regexp.MustCompile(`[^a-z0-9]`)

func newSuite(t *testing.T) *suite {
	t.Helper()
	return &suite{dir: t.TempDir(), files: map[string]string{}}
}

// write puts a file into the package of that name below the test's, which has none.
func (s *suite) write(t *testing.T, name, file, text string) {
	t.Helper()
	there, err := filepath.Abs(filepath.Join("run", name, file))
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(s.dir, fmt.Sprintf("%d.go", len(s.files)))
	if err := os.WriteFile(here, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.files[there] = here
}

// add makes packages of the marked blocks of a page. setup, which may be empty, is what it declares for them.
func (s *suite) add(t *testing.T, file, setup string, page Page) {
	t.Helper()
	shared, prepares := declared(t, setup)
	base := filepath.Base(file)
	common := "p" + notName.ReplaceAllString(strings.ToLower(strings.TrimSuffix(base, ".md")), "")
	fragments := 0
	for _, block := range page.Blocks {
		build, run := block.Marked()
		if !build {
			continue
		}
		name, call := common, fmt.Sprintf("block: %s.Block%d", common, block.Line)
		if block.whole() {
			name = fmt.Sprintf("%s%d", common, block.Line)
			call = "main: " + name + ".Main"
			s.imports = append(s.imports, name)
		} else {
			fragments++
		}
		text, err := Program(name, file, block, shared)
		if err != nil {
			t.Error(err)
			continue
		}
		s.write(t, name, fmt.Sprintf("block%d.go", block.Line), text)
		if !run {
			s.built++
			continue
		}
		output, says := block.Output()
		s.blocks = append(s.blocks, fmt.Sprintf("{name: %q, %s, says: %t, output: %q},", fmt.Sprintf("%s:%d", base, block.Line), call, says, output))
	}
	if fragments == 0 {
		return
	}
	s.imports = append(s.imports, common)
	text := "package " + common + "\n" + Common
	if !prepares {
		text += "\nfunc prepare() {}\n"
	}
	s.write(t, common, "common.go", text)
	if setup != "" {
		s.write(t, common, "setup.go", strings.Replace(setup, "package setup\n", "package "+common+"\n", 1))
	}
}

// declared are the names that a page's setup declares, and whether prepare is among them.
func declared(t *testing.T, setup string) (names map[string]bool, prepares bool) {
	t.Helper()
	names = map[string]bool{}
	if setup == "" {
		return names, false
	}
	file, err := parser.ParseFile(token.NewFileSet(), "setup", setup, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name := range file.Scope.Objects {
		names[name] = true
	}
	return names, names["prepare"]
}

// run compiles all blocks at once and runs those that are to be run; it returns what the go command says.
func (s *suite) run(t *testing.T) (string, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "run_test.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var imports strings.Builder
	for _, name := range s.imports {
		as := "_ "
		if strings.Contains(strings.Join(s.blocks, ""), ": "+name+".") {
			as = ""
		}
		fmt.Fprintf(&imports, "import %s%q\n", as, module+"/internal/docs/run/"+name)
	}
	test := strings.Replace(string(text), "import (", imports.String()+"import (", 1)
	s.write(t, "", "run_test.go", strings.Replace(test, "// BLOCKS", strings.Join(s.blocks, "\n\t"), 1))
	overlay, err := json.Marshal(map[string]any{"Replace": s.files})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(s.dir, "overlay.json")
	if err := os.WriteFile(name, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(s.dir, "blocks.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", binary, "-overlay", name, "./run").CombinedOutput(); err != nil {
		return string(out), err
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout=1m")
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestMarkedBlocks compiles and runs what the documentation has marked.
func TestMarkedBlocks(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		setup, err := os.ReadFile(filepath.Join("testdata", "setup", strings.TrimSuffix(strings.ToLower(filepath.Base(name)), ".md")+".go"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		file, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		s.add(t, file, string(setup), Parse(string(text)))
	}
	if len(s.blocks) < leastBlocks {
		t.Errorf("%d blocks are marked to be run, fewer than %d: was a mark lost?", len(s.blocks), leastBlocks)
	}
	if out, err := s.run(t); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d blocks run, %d compiled", len(s.blocks), s.built)
}

// leastBlocks keeps blocks from losing their marks in silence.
const leastBlocks = 14

// TestBrokenBlocks holds that a block is not taken for sound because nobody looks.
func TestBrokenBlocks(t *testing.T) {
	t.Parallel()
	page := func(blocks ...[]string) Page {
		var text strings.Builder
		for _, lines := range blocks {
			text.WriteString("```" + strings.Join(lines, "\n") + "\n```\n")
		}
		return Parse(text.String())
	}
	const setup = "package setup\n\nvar answer int\n\nfunc prepare() { answer = 42 }\n"
	s := newSuite(t)
	s.add(t, "good.md", setup, page(
		[]string{Run, "key, err := transactor.Keyspace().Key(`7`, `x`)", "fmt.Println(client.Incr(ctx, key).Val())", "for i := range 3 { … }", "// Output: 1"},
		[]string{Run, "func twice(n int) int {", "\treturn 2 * n", "}", "", "fmt.Println(twice(4))", "// Output:", "// 8"},
		[]string{Run, "package main", "", "import `fmt`", "", "func main() {", "\tfmt.Println(`hi`)", "}", "// Output: hi"},
		[]string{Run, "fmt.Println(answer)", "// Output: 42"},
		[]string{Run, "_, err := transactor.Keyspace().Key(``)", "if err == nil {", "\tpanic(`none`)", "}"},
		[]string{"go", "transactor.Comit()"},
	))
	s.add(t, "bad.md", "", page(
		[]string{Run, "fmt.Println(`a`)", "// Output: b"},
		[]string{Run, "", "_, err := transactor.Keyspace().Key(``)"},
	))
	out, err := s.run(t)
	if err == nil || strings.Count(out, "--- PASS: TestBlocks/good.md:") != 5 || strings.Count(out, "--- FAIL: TestBlocks/bad.md:") != 2 ||
		!strings.Contains(out, "it prints\n        a\n        and says that it prints\n        b\n") || !strings.Contains(out, "bad.md:7: luatx: aggregate id") {
		t.Errorf("%v\n%s", err, out)
	}

	s = newSuite(t)
	s.add(t, "undefined.md", "", page(
		[]string{Run, "", "transactor.Comit()"},
		[]string{Build, "", "transactor.Comit()"},
	))
	out, err = s.run(t)
	for _, want := range []string{"undefined.md:3: transactor.Comit undefined", "undefined.md:7: transactor.Comit undefined"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v\n%s\nwant %s", err, out, want)
		}
	}
}

// TestUnmarkedBlocksAreGo holds the other blocks of Go to its grammar at least.
func TestUnmarkedBlocksAreGo(t *testing.T) {
	t.Parallel()
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range Parse(string(text)).Blocks {
			if language, _, _ := strings.Cut(block.Info, " "); language != "go" {
				continue
			}
			if _, err := Program("page", name, block, nil); err != nil {
				t.Error(err)
			}
			if build, _ := block.Marked(); !build && block.Info != "go" {
				t.Errorf("%s:%d: the mark %q is none", name, block.Line, block.Info)
			}
		}
	}
}
