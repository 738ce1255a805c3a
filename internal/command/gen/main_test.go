package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestDocsAreUpToDate(t *testing.T) {
	t.Parallel()
	want := docs()
	got, err := os.ReadFile("../" + docsPath)
	redistest.Must(t, err)
	if string(got) != want {
		t.Error("docs/commands.md is not what the table says: run `go run ./gen docs` in internal/command")
	}
	for _, s := range command.All() {
		if !strings.Contains(want, "\n| "+s.Name+" | ") || undo(s) == "" {
			t.Errorf("the page lacks %s, or its undo", s.Name)
		}
	}
	for _, form := range []string{"COPY DB", "SORT BY", "SORT_RO GET", "XREAD BLOCK", "XREADGROUP BLOCK"} {
		if !strings.Contains(want, "\n| "+form+" | ") {
			t.Errorf("the page lacks the form %s", form)
		}
	}
}

// TestTableIsUpToDate generates the table if there is a server of the version that it was generated from. On other servers, it
// checks that the key specifications are understood.
func TestTableIsUpToDate(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	info := client.Info(t.Context(), "server").Val()
	if strings.Contains(info, "redis_version:6.") {
		t.Skip("the server tells no key specifications")
	}
	if !strings.Contains(info, "redis_version:8.6.") {
		facts, err := load(t.Context(), client)
		if err != nil || len(facts) < 200 {
			t.Errorf("%d commands, error %v", len(facts), err)
		}
		return
	}
	want, err := table(t.Context(), client.Options().Addr)
	redistest.Must(t, err)
	got, err := os.ReadFile("../" + tablePath)
	redistest.Must(t, err)
	if string(got) != string(want) {
		t.Error("table_gen.go is not what the server says: run `go generate` in internal/command")
	}
}

func TestRunRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"tables"}, {"-nosuch"}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
