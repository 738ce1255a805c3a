package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

var root = filepath.Join("..", "..")

// file is a page whose blocks are tested.
type file struct{ name, text string }

func pages(t *testing.T) (files []file) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	assert.Must(t, err)
	for _, name := range append(names, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(name)
		assert.Must(t, err)
		files = append(files, file{name, string(text)})
	}
	return files
}

// A suite is a tree of files for `go test -overlay`: a few packages with the marked blocks, one more for each whole
// program, and a test that runs them.
type suite struct {
	dir    string
	files  map[string]string // by the path that the go command reads, the path of the file that holds the text
	parts  []*part
	blocks []string // lines of the test's table, with § in place of the package
	built  int      // number of blocks that are only compiled
}

// A part is the code that must share a package: a whole program, or all other blocks of a page with their setup. A whole
// program shares its package with no other part. Other parts share one unless a part declares a name that the other
// declares or needs, because each package takes a second to compile.
type part struct {
	files           map[string]string
	blocks          []string
	declares, needs map[string]bool
	whole           bool
}

var notName = regexp.MustCompile(`[^a-z0-9]`)

func newSuite(t *testing.T) *suite {
	t.Helper()
	return &suite{dir: t.TempDir(), files: map[string]string{}}
}

// put adds a file to a part.
func (p *part) put(t *testing.T, name, text string) {
	t.Helper()
	declares, needs, err := Names("package p\n" + text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p.files[name] = text
	maps.Copy(p.declares, declares)
	maps.Copy(p.needs, needs)
}

// apart reports whether two parts must not share a package.
func (p *part) apart(q *part) bool {
	meets := func(a, b map[string]bool) bool {
		for name := range a {
			if b[name] {
				return true
			}
		}
		return false
	}
	return p.whole || q.whole || meets(p.declares, q.declares) || meets(p.declares, q.needs) || meets(p.needs, q.declares)
}

// add turns the marked blocks of a page into parts. setup holds the page's declarations for its blocks, and may be
// empty.
func (s *suite) add(t *testing.T, file, setup string, page Page) {
	t.Helper()
	base := filepath.Base(file)
	name := "p" + notName.ReplaceAllString(strings.ToLower(strings.TrimSuffix(base, ".md")), "")
	blocks, prepare, shared := newPart(false), "none", map[string]bool{}
	if setup != "" {
		var err error
		if shared, _, err = Names(setup); err != nil {
			t.Fatal(err)
		}
		if shared["prepare"] {
			prepare = "prepare_" + name
		}
	}
	for _, block := range page.Blocks {
		build, run := block.Marked()
		if !build {
			continue
		}
		into, call := blocks, fmt.Sprintf("Block_%s_%d", name, block.Line)
		text, err := Program(call, prepare, file, block, shared)
		if err != nil {
			t.Error(err)
			continue
		}
		call = "block: §." + call
		if block.whole() {
			into, call = newPart(true), "main: §.Main"
			s.parts = append(s.parts, into)
		}
		into.put(t, fmt.Sprintf("%s%d.go", name, block.Line), text)
		if !run {
			s.built++
			continue
		}
		output, says := block.Output()
		into.blocks = append(into.blocks, fmt.Sprintf("{name: %q, %s, says: %t, output: %q},", fmt.Sprintf("%s:%d", base, block.Line), call, says, output))
	}
	if len(blocks.files) > 0 {
		_, setup, _ = strings.Cut(setup, "package setup\n")
		blocks.put(t, name+".go", strings.Replace(setup, "func prepare()", "func "+prepare+"()", 1))
		s.parts = append(s.parts, blocks)
	}
}

func newPart(whole bool) *part {
	return &part{files: map[string]string{}, declares: map[string]bool{}, needs: map[string]bool{}, whole: whole}
}

// write adds a file to the package of that name below the test's package. An empty name adds it to the test's package.
func (s *suite) write(t *testing.T, name, file, text string) {
	t.Helper()
	there, err := filepath.Abs(filepath.Join("run", name, file))
	assert.Must(t, err)
	here := filepath.Join(s.dir, fmt.Sprintf("%d.go", len(s.files)))
	assert.Must(t, os.WriteFile(here, []byte(text), 0o600))
	s.files[there] = here
}

// pack puts each part into the first package that it fits in. It returns the imports of these packages.
func (s *suite) pack(t *testing.T) (imports string) {
	t.Helper()
	var packed [][]*part
	for _, p := range s.parts {
		at := slices.IndexFunc(packed, func(parts []*part) bool { return !slices.ContainsFunc(parts, p.apart) })
		if at < 0 {
			at, packed = len(packed), append(packed, nil)
		}
		packed[at] = append(packed[at], p)
	}
	for i, parts := range packed {
		name, as := fmt.Sprintf("blocks%d", i), "_ "
		for _, p := range parts {
			for _, file := range slices.Sorted(maps.Keys(p.files)) {
				s.write(t, name, file, "package "+name+"\n"+p.files[file])
			}
			for _, block := range p.blocks {
				s.blocks, as = append(s.blocks, strings.Replace(block, "§", name, 1)), ""
			}
		}
		s.write(t, name, "common.go", "package "+name+"\n"+Common)
		imports += fmt.Sprintf("import %s%q\n", as, module+"/internal/docs/run/"+name)
	}
	return imports
}

// run compiles all blocks at once and runs those that are marked to be run. It returns the output of the go command or
// of the blocks.
func (s *suite) run(t *testing.T) (string, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "run_test.go.txt"))
	assert.Must(t, err)
	test := strings.Replace(string(text), "import (", s.pack(t)+"import (", 1)
	s.write(t, "", "run_test.go", strings.Replace(test, "// BLOCKS", strings.Join(s.blocks, "\n\t"), 1))
	overlay, err := json.Marshal(map[string]any{"Replace": s.files})
	assert.Must(t, err)
	name, binary := filepath.Join(s.dir, "overlay.json"), filepath.Join(s.dir, "blocks.test")
	assert.Must(t, os.WriteFile(name, overlay, 0o600))
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-w", "-o", binary, "-overlay", name, "./run").CombinedOutput(); err != nil {
		return string(out), err
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout=5m")
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestMarkedBlocksCompileAndRun(t *testing.T) {
	t.Parallel()
	s := newSuite(t)
	for _, page := range pages(t) {
		setup, err := os.ReadFile(filepath.Join("testdata", "setup", strings.TrimSuffix(strings.ToLower(filepath.Base(page.name)), ".md")+".go"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		name, err := filepath.Abs(page.name)
		assert.Must(t, err)
		s.add(t, name, string(setup), Parse(page.text))
	}
	if out, err := s.run(t); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if len(s.blocks) < leastBlocks {
		t.Errorf("%d blocks are marked to be run, fewer than %d: was a mark lost?", len(s.blocks), leastBlocks)
	}
	t.Logf("%d blocks run, %d compiled", len(s.blocks), s.built)
}

// leastBlocks is the minimum number of blocks to run. The test fails below it, because a block may have lost its mark.
const leastBlocks = 29

func TestBrokenBlocksAreReported(t *testing.T) {
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

func TestUnmarkedBlocksAreGo(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, block := range Parse(page.text).Blocks {
			if language, _, _ := strings.Cut(block.Info, " "); language != "go" {
				continue
			}
			if _, err := Program("block", "none", page.name, block, nil); err != nil {
				t.Error(err)
			}
			if build, _ := block.Marked(); !build && block.Info != "go" {
				t.Errorf("%s:%d: the mark %q is none", page.name, block.Line, block.Info)
			}
		}
	}
}
