package main

import (
	"context"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	buildTimeout = 5 * time.Minute
	outputLines  = 30
)

var (
	testRan    = regexp.MustCompile(`(?m)^=== RUN `)
	testPassed = regexp.MustCompile(`(?m)^--- PASS: `)
)

// test builds and runs the mutant's test in the worker's tree as it is now: survived is green, killed is red.
func (w worker) test(ctx context.Context, m Mutant) result {
	dir := filepath.Join(w.tree, filepath.FromSlash(m.Package))
	if out, err := w.command(ctx, buildTimeout, dir, "go", "test", "-c", "-vet=off", "-o", w.binary, "."); err != nil {
		return result{outcome: doesNotBuild, detail: tail(out) + err.Error()}
	}
	out, err := w.command(ctx, w.timeout+10*time.Second, dir, w.binary,
		"-test.v", "-test.count=1", "-test.timeout="+w.timeout.String(), "-test.run="+m.Test)
	switch {
	case !testRan.MatchString(out):
		return result{outcome: noTest, detail: tail(out)}
	case err != nil:
		return result{outcome: killed, detail: tail(out) + err.Error()}
	case !testPassed.MatchString(out):
		return result{outcome: noTest, detail: tail(out)}
	default:
		return result{outcome: survived, detail: tail(out)}
	}
}

func (w worker) command(ctx context.Context, timeout time.Duration, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second // a child of the test may keep its output open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func tail(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-outputLines):], "")
}

// treeFS is the repository without its history and what was built.
type treeFS struct{ fs.ReadLinkFS }

func (t treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(t.ReadLinkFS, name)
	var kept []fs.DirEntry
	for _, entry := range entries {
		if entry.Name() != ".git" && entry.Name() != "bin" {
			kept = append(kept, entry)
		}
	}
	return kept, err
}
