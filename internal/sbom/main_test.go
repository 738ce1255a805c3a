package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestBillListsTheGoReleaseAndEachModule(t *testing.T) {
	t.Parallel()
	b := describe(&debug.BuildInfo{
		GoVersion: "go1.26.4",
		Main:      debug.Module{Path: "github.com/luatx/luatx", Version: "v0.1.0+dirty"},
		Deps: []*debug.Module{
			{Path: "a.example/a", Version: "v1.2.3", Sum: "h1:a"},
			{Path: "b.example/b", Version: "v1.0.0", Replace: &debug.Module{Path: "c.example/c", Version: "v2.0.0", Sum: "h1:c"}},
		},
	}, "luatx", "00ff")
	var purls []string
	for _, c := range b.Components {
		purls = append(purls, c.PURL)
	}
	if want := []string{"pkg:golang/std@1.26.4", "pkg:golang/a.example/a@v1.2.3", "pkg:golang/c.example/c@v2.0.0"}; !slices.Equal(purls, want) {
		t.Errorf("%q, want %q", purls, want)
	}
	program := b.Metadata.Component
	if program.Name != "luatx" || program.PURL != "pkg:golang/github.com/luatx/luatx@v0.1.0%2Bdirty" || program.Hashes[0].Content != "00ff" {
		t.Errorf("%+v", program)
	}
}

func TestBillOfARealProgramListsItsModules(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	assert.Must(t, err)
	var out bytes.Buffer
	assert.Must(t, run([]string{path}, &out))
	var b bom
	assert.Must(t, json.Unmarshal(out.Bytes(), &b))
	if b.Format != "CycloneDX" || len(b.Metadata.Component.Hashes) != 1 || len(b.Components) == 0 || b.Components[0].Name != "std" {
		t.Errorf("%s", out.String())
	}
}

func TestBillOfAnotherFileIsAnError(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/text"
	assert.Must(t, os.WriteFile(path, []byte("text"), 0o600))
	for _, args := range [][]string{{path}, {path + "x"}, {}} {
		if err := run(args, &strings.Builder{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
