package swap_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestProgramsDifferInOneLine(t *testing.T) {
	t.Parallel()
	var lines [2][]string
	for i, name := range []string{"before", "after"} {
		text, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = strings.Split(string(text), "\n")
	}
	if len(lines[0]) != len(lines[1]) {
		t.Fatalf("%d and %d lines", len(lines[0]), len(lines[1]))
	}
	var diff []string
	for i, line := range lines[0] {
		if line != lines[1][i] {
			diff = append(diff, "- "+strings.TrimSpace(line), "+ "+strings.TrimSpace(lines[1][i]))
		}
	}
	want := "- mw, err := stack.Pipelined(client, cfg)\n+ mw, err := stack.Scripted(transactor, cfg)"
	if got := strings.Join(diff, "\n"); got != want {
		t.Errorf("the diff is\n%s\nwant\n%s", got, want)
	}
}

// TestBothProgramsPrintTheSameOnEveryServer also checks that they leave nothing behind.
func TestBothProgramsPrintTheSameOnEveryServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"before", "after"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "./"+name)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for server, args := range map[string]func(t *testing.T) []string{
		"embedded": func(*testing.T) []string { return nil },
		"redis":    func(t *testing.T) []string { return []string{"--redis", redistest.Shared(t).Addr()} },
		"cluster": func(t *testing.T) []string {
			return []string{"--redis", strings.Join(redistest.SharedCluster(t).Addrs(), ",")}
		},
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			var said [2]string
			for i, name := range []string{"before", "after"} {
				out, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), args(t)...).Output()
				if err != nil {
					t.Errorf("%s: %v\n%s", name, err, out)
				}
				said[i] = string(out)
			}
			if said[0] != said[1] || !strings.Contains(said[0], "orders entered    100 of 100\nentered twice     0\n") {
				t.Errorf("before:\n%s\nafter:\n%s", said[0], said[1])
			}
		})
	}
	t.Run("usage", func(t *testing.T) {
		t.Parallel()
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "after"), "--nonsense").CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "-redis") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
