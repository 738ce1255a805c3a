package matrix

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
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

// suite runs the tests of packages of the core, with the environment given, and counts them.
func suite(t *testing.T, packages []string, env ...string) tally {
	t.Helper()
	run := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-count=1", "-timeout=20m"}, packages...)...)
	run.Dir = ".."
	run.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LUATX_VERIFY=") || strings.HasPrefix(v, "LUATX_TEST_")
	}), append(env, "CI=")...)
	out, err := run.Output()
	n, text := count(out)
	if err != nil && len(n.failed) == 0 {
		n.failed = append(n.failed, err.Error()) // a package that does not build
	}
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

// count counts the tests, without those inside of others, and returns what each has printed.
func count(out []byte) (n tally, text map[string]string) {
	text = make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // of the build
		}
		test, _, _ := strings.Cut(e.Test, "/")
		name := e.Package + " " + test
		if e.Action == "output" {
			text[name] += e.Output
		}
		whole := test == e.Test // else it is inside of another
		switch {
		case e.Action == "fail" && e.Test == "" && slices.ContainsFunc(n.failed, func(of string) bool { return strings.HasPrefix(of, name) }):
			// its tests have said so
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

func TestCount(t *testing.T) {
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
