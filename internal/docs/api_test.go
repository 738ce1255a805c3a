package docs

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestAPIPageListsEveryExportedName(t *testing.T) {
	t.Parallel()
	wantPage(t, "../../docs/api.txt", API)
}

// wantPage fails the test unless a page equals what render returns for the tree. LUATX_UPDATE=1 writes the page.
func wantPage(t *testing.T, page string, render func(fs.FS) (string, error)) {
	t.Helper()
	want, err := render(os.DirFS(root))
	assert.Must(t, err)
	if os.Getenv("LUATX_UPDATE") != "" {
		assert.Must(t, os.WriteFile(page, []byte(want), 0o600))
		return
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != want {
		t.Errorf("%s is not what the tree says (%v): LUATX_UPDATE=1 go test ./internal/docs -run %s, and review the difference", page, err, t.Name())
	}
}

func TestAPIListsTheExportedNamesOfATree(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := API(fstest.MapFS{
		"a/a.go":          file("package a\n\ntype T[K any] struct {\n\tF, g int\n\t*pkg.E\n}\n\nfunc (t *T[K]) M() {}\nfunc (t t) N() {}\n\ntype I interface{ Do() }\n\ntype t struct{ X int }\n"),
		"b.go":            file("package b\n\nconst C = 1\n\nvar v, V int\n\nfunc F() {}\n"),
		"b_test.go":       file("package b\n\nfunc Test() {}\n"),
		"internal/c/c.go": file("package c\n\nfunc Hidden() {}\n"),
		"cmd/d/main.go":   file("package main\n\nfunc Command() {}\n"),
	})
	const want = ". C const\n. F func\n. V var\na I type\na I.Do method\na T type\na T.E field\na T.F field\na T.M method\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
