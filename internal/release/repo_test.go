package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

const (
	core    = "github.com/luatx/tiny"
	fence   = "```"
	program = fence + "go\nfunc Fragment() {}\n" + fence + "\n\n" +
		fence + "go build\npackage main\n\nimport \"" + core + "/contrib/a\"\n\nfunc main() { a.A() }\n" + fence + "\n"
)

// tiny is a repository with a core that has a command, a module that is published and one that is not.
var tiny = map[string]string{
	"LICENSE":       "MIT\n",
	"README.md":     "# tiny\n\n" + program,
	"CHANGELOG.md":  "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-11-25\n\n- All of it.\n",
	"go.work":       "go 1.26.0\n\nuse (\n\t./bench\n\t.\n\t./contrib/a\n)\n",
	"go.mod":        "module " + core + "\n\ngo 1.26.0\n",
	"tiny.go":       "package tiny\n\nfunc Tiny() {}\n",
	"tiny_test.go":  "package tiny\n",
	"internal/i.go": "package internal\n",
	"cmd/luatx/main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"runtime/debug\"\n)\n\nfunc main() {\n\tinfo, _ := debug.ReadBuildInfo()\n" +
		"\tfmt.Println(info.Main.Version)\n}\n",
	"contrib/a/go.mod": "module " + core + "/contrib/a\n\ngo 1.26.0\n\nrequire " + core + " v0.0.1\n\nreplace " + core + " => ../..\n",
	"contrib/a/a.go":   "package a\n\nimport \"" + core + "\"\n\nfunc A() { tiny.Tiny() }\n",
	"bench/go.mod":     "module " + core + "/bench\n\ngo 1.26.0\n\nrequire " + core + " v0.0.1\n\nreplace " + core + " => ../\n",
	"bench/b.go":       "package bench\n",
}

// repository commits the tiny repository, with changes by file name, and returns its directory. An empty text removes the file.
func repository(t *testing.T, changes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := maps.Clone(tiny)
	maps.Copy(files, changes)
	for name, text := range files {
		if text != "" {
			write(t, dir, name, text)
		}
	}
	git(t, dir, "init", "--quiet")
	git(t, dir, "config", "user.name", "Maintainer")
	git(t, dir, "config", "user.email", "maintainer@example.com")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "tiny")
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	assert.Must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), dir, nil, "git", args...)
	assert.Must(t, err)
	return strings.TrimSpace(out)
}

// opened returns a release whose go command has no network, and its output.
func opened(t *testing.T, dir, version string) (*release, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	r, err := open(t.Context(), dir, version, &out)
	assert.Must(t, err)
	r.env = []string{"GOPROXY=off", "GOTOOLCHAIN=local"}
	return r, &out
}

// wantUnchanged checks that a repository is still at a commit and has no other changes.
func wantUnchanged(t *testing.T, dir, head string) {
	t.Helper()
	assert.Equal(t, git(t, dir, "rev-parse", "HEAD"), head, "the commit that is checked out")
	assert.Equal(t, git(t, dir, "tag"), "", "the tags")
	assert.Equal(t, git(t, dir, "status", "--porcelain"), "", "the changes of the tree")
}
