package matrix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tally is the outcome of a suite.
type tally struct {
	passed, skipped int
	failed          []string
}

func (n tally) String() string {
	if len(n.failed) > 0 {
		return fmt.Sprintf("%d of %d fail", len(n.failed), n.passed+len(n.failed))
	}
	return fmt.Sprintf("%d pass, %d skipped", n.passed, n.skipped)
}

// program is the test program of a package.
type program struct{ name, dir, path string }

// build links the test program of each package that has tests, once for all images. The go command would link them again
// for each image.
func build(t *testing.T, packages []string) []program {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, packages...)...)
	list.Dir = ".."
	out, err := list.Output()
	must(t, err)
	var all []program
	target := t.TempDir()
	for line := range strings.Lines(string(out)) {
		if name, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, program{name, dir, filepath.Join(target, fmt.Sprint(len(all), ".test"))})
		}
	}
	sideBySide(len(all), func(i int) {
		link := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-c", "-o", all[i].path, all[i].name)
		link.Dir = ".."
		if out, err := link.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", all[i].name, err, out)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// run runs the program and returns its output in the format of go test -json. The output passes through a file, because
// servers that the tests leave behind would keep a pipe open.
func (p program) run(t *testing.T, env []string) []byte {
	lines, err := os.Create(p.path + "." + filepath.Base(t.Name()) + ".out")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = lines.Close() }()
	run := exec.CommandContext(t.Context(), p.path, "-test.v=test2json", "-test.timeout=20m")
	run.Dir, run.Env, run.Stdout, run.Stderr = p.dir, env, lines, lines
	failed := run.Run()
	if _, err := lines.Seek(0, 0); err != nil {
		t.Error(err)
	}
	convert := exec.CommandContext(t.Context(), "go", "tool", "test2json", "-p", p.name)
	convert.Stdin = lines
	out, err := convert.Output()
	if err != nil || failed != nil && !bytes.Contains(out, []byte(`"Action":"fail"`)) {
		t.Errorf("%s: %v, %v", p.name, failed, err)
	}
	return out
}

// sideBySide calls f with each number below n, as many at a time as there are processors.
func sideBySide(n int, f func(i int)) {
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			f(i)
		})
	}
	running.Wait()
}

// suite runs test programs with the given environment, a few at a time, and counts the tests.
func suite(t *testing.T, programs []program, env ...string) tally {
	t.Helper()
	env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LUATX_VERIFY=") || strings.HasPrefix(v, "LUATX_TEST_")
	}), append(env, "CI=")...)
	outputs := make([][]byte, len(programs))
	sideBySide(len(programs), func(i int) {
		p := programs[i]
		outputs[i] = p.run(t, env)
	})
	n, text := count(bytes.Join(outputs, nil))
	for _, name := range n.failed {
		t.Errorf("%s\n%s", name, text[name])
	}
	if n.passed == 0 {
		t.Error("no test ran")
	}
	return n
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// count counts the tests, without subtests, and returns the output of each.
func count(out []byte) (n tally, text map[string]string) {
	text = make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a line of the build
		}
		test, _, _ := strings.Cut(e.Test, "/")
		name := e.Package + " " + test
		if e.Action == "output" {
			text[name] += e.Output
		}
		whole := test == e.Test // otherwise it is a subtest
		switch {
		case e.Action == "fail" && e.Test == "" && slices.ContainsFunc(n.failed, func(of string) bool { return strings.HasPrefix(of, name) }):
			// its tests have failed already
		case e.Action == "fail" && whole:
			n.failed = append(n.failed, name)
		case e.Test == "" || !whole:
		case e.Action == "pass":
			n.passed++
		case e.Action == "skip":
			n.skipped++
		}
	}
	return n, text
}

func TestCountCountsTopLevelTests(t *testing.T) {
	t.Parallel()
	lines := []event{
		{"pass", "a", "TestOne", ""},
		{"pass", "a", "TestOne/sub", ""},
		{"skip", "a", "TestTwo", ""},
		{"skip", "a", "TestOne/other", ""},
		{"output", "b", "TestThree/sub", "why\n"},
		{"fail", "b", "TestThree", ""},
		{"fail", "b", "TestThree/sub", ""},
		{"fail", "b", "", ""},
		{"fail", "c", "", ""},
		{"pass", "a", "", ""},
	}
	var out bytes.Buffer
	for _, line := range lines {
		if err := json.NewEncoder(&out).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	n, text := count(append([]byte("# a build's line\n"), out.Bytes()...))
	if n.passed != 1 || n.skipped != 1 || !slices.Equal(n.failed, []string{"b TestThree", "c "}) || text["b TestThree"] != "why\n" {
		t.Errorf("%+v, %q", n, text)
	}
	if got := n.String(); got != "2 of 3 fail" {
		t.Error(got)
	}
}
