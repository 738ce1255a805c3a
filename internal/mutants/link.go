package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// An original is the test binary of a package without an edit.
type original struct {
	binary string
	parts  string // the directory in which the go command linked it
}

var workDir = regexp.MustCompile(`(?m)^WORK=(.+)$`)

func (r *runner) compileOriginal(ctx context.Context, binary, pkg string) (original, error) {
	out, err := r.compile(ctx, binary, pkg, "-work")
	if err != nil {
		return original{}, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	match := workDir.FindSubmatch(out)
	if match == nil {
		return original{}, fmt.Errorf("%s: the go command does not name its directory:\n%s", pkg, out)
	}
	return original{binary, filepath.Join(string(match[1]), "b001")}, nil
}

// relink builds the test binary of a package with an edit. It compiles only the edited package, where the go command also compiles
// each package that imports it. It fails if the edit does not compile, if other packages have inlined what it changes, or if
// the package embeds files.
func (w worker) relink(ctx context.Context, m mutant, pkg, edited, binary string) error {
	from, err := w.original(ctx, pkg)
	if err != nil {
		return err
	}
	format := "{{.ImportPath}}{{range .GoFiles}} {{.}}{{end}}"
	if path.Clean(pkg) == path.Dir(m.file) {
		format += "{{range .TestGoFiles}} {{.}}{{end}}"
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		if err := start(ctx, filepath.Join(w.root, filepath.FromSlash(path.Dir(m.file))), nil, &out, "go", args...); err != nil {
			return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args[:2], " "), err, &out)
		}
		return out.String(), nil
	}
	listed, err := run("list", "-f", format)
	if err != nil {
		return err
	}
	files := strings.Fields(listed)
	name, files := files[0], files[1:]
	for i, file := range files {
		if files[i] = "." + string(filepath.Separator) + file; file == path.Base(m.file) {
			files[i] = edited
		}
	}

	text, err := os.ReadFile(filepath.Join(from.parts, "importcfg.link"))
	if err != nil {
		return err
	}
	archive, imports, links := filepath.Join(w.dir, "edited.a"), filepath.Join(w.dir, "imports"), filepath.Join(w.dir, "links")
	imported := regexp.MustCompile(`(?m)^packagefile .*\n`).FindAll(text, -1)
	linked := regexp.MustCompile(`(?m)^packagefile `+regexp.QuoteMeta(name)+`=.*$`).ReplaceAllLiteral(text, []byte("packagefile "+name+"="+archive))
	if err := errors.Join(os.WriteFile(imports, bytes.Join(imported, nil), 0o600), os.WriteFile(links, linked, 0o600)); err != nil {
		return err
	}
	at := edited + "=>" + filepath.Join(w.root, filepath.FromSlash(m.file))
	compile := []string{"tool", "compile", "-o", archive, "-trimpath", at, "-p", name, "-complete", "-pack", "-importcfg", imports}
	if _, err := run(append(compile, files...)...); err != nil {
		return err
	}
	_, err = run("tool", "link", "-o", binary, "-w", "-X", "testing.testBinary=1", "-importcfg", links, filepath.Join(from.parts, "_pkg_.a"))
	return err
}
