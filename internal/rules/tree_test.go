package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

// module is the path of the core, and the prefix of all other modules.
const module = "github.com/luatx/luatx"

// root is the path of the top of the repository from this package's directory.
var root = filepath.Join("..", "..")

// listed is the output of `go list` for a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

// goList runs `go list -json` with the arguments in dir. It also lists packages that do not compile, because the
// build reports them better.
func goList(t *testing.T, dir string, args ...string) []listed {
	t.Helper()
	watchTree(t)
	fields := "-json=ImportPath,Standard,Imports,Module"
	decoder := json.NewDecoder(bytes.NewReader(output(t, dir, "go", append([]string{"list", "-e", fields}, args...)...)))
	var packages []listed
	for {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("reading the output of go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// moduleDirs returns the directories of the core and of the other modules.
func moduleDirs(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(output(t, root, "go", "list", "-m", "-f", "{{.Dir}}"))), "\n")
}

// everyPackage returns the packages of all modules.
func everyPackage(t *testing.T) []listed {
	t.Helper()
	var patterns []string
	for _, dir := range moduleDirs(t) {
		patterns = append(patterns, dir+"/...")
	}
	return goList(t, root, patterns...)
}

// trackedFiles returns the slashed paths of the existing files under version control that end in the suffix.
func trackedFiles(t *testing.T, suffix string) []string {
	t.Helper()
	watchTree(t)
	// The directory may belong to another user, as in a container. Listing its files runs no code from it.
	names := output(t, root, "git", "-c", "safe.directory=*", "ls-files", "-z")
	var files []string
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() && strings.HasSuffix(name, suffix) {
			files = append(files, name)
		}
	}
	return files
}

// watchTree opens every directory of the tree. The go command cannot see what the commands of a test read. By these
// reads, it knows that the test depends on the tree, and does not reuse a cached result after a change.
func watchTree(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
			return nil
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatalf("walking the tree: %v", err)
	}
}

// inTree reports whether a package is the top of the tree or lies below it.
func inTree(pkg, tree string) bool {
	return pkg == tree || strings.HasPrefix(pkg, tree+"/")
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	assert.Must(t, err)
	return string(text)
}

func output(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return out
}

// report fails the test with one error for each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, problem := range problems {
		t.Error(problem)
	}
}

// wantProblem checks that there is exactly one problem and that it contains want, or no problem if want is empty.
func wantProblem(t *testing.T, problems []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(problems) > 0:
		t.Errorf("problems %q, want none", problems)
	case want != "" && (len(problems) != 1 || !strings.Contains(problems[0], want)):
		t.Errorf("problems %q, want one with %q", problems, want)
	}
}
