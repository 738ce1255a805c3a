package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A proof fetches the version as a user does: into an empty module cache, from a proxy with the files that the go command
// makes from the tags.
type proof struct {
	*release
	tmp string
	env []string
}

// prove checks that the modules that the tags name can be fetched, compiled and installed.
func (r *release) prove(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp("", "luatx-proof-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	p := &proof{release: r, tmp: tmp}
	if err := p.makeProxy(ctx, dir); err != nil {
		return err
	}
	var problems []string
	try := func(what string, err error) {
		if err != nil {
			problems = append(problems, what+": "+err.Error())
			return
		}
		fmt.Fprintf(r.out, "ok  %s\n", what)
	}
	for _, m := range r.published() {
		try("go get "+m.Path+"@"+r.version, p.get(ctx, m))
	}
	try("go install "+p.program(), p.install(ctx))
	source, err := readmeProgram(dir)
	switch {
	case err != nil:
		problems = append(problems, err.Error())
	case source == "":
		fmt.Fprintln(r.out, "--  README.md has no Go block that is a complete package main, so none was built")
	default:
		binary, err := p.build(ctx, source)
		try("go build of the first program of README.md", err)
		if err == nil && strings.Contains(source, p.core().Path+"/service") {
			try("the program handles a command, publishes the event and stops", serve(ctx, binary))
		}
	}
	return problem(problems)
}

// makeProxy makes the go command write the files of a proxy from the tags, and sets the environment that uses the
// proxy.
func (p *proof) makeProxy(ctx context.Context, repository string) error {
	user, err := p.userEnv(ctx)
	if err != nil {
		return err
	}
	tags := filepath.Join(p.tmp, "tags")
	p.env = append(p.release.env,
		"GOENV=off", "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw -trimpath", "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB="+p.core().Path,
		"GOSUMDB="+user["GOSUMDB"], "GOMODCACHE="+tags,
		"GOPROXY=direct", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+fileURL(repository)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+p.core().Path)
	args := []string{"mod", "download", "-json"}
	for _, m := range p.published() {
		args = append(args, m.Path+"@"+p.version)
	}
	out, err := command(ctx, p.tmp, p.env, "go", args...)
	var problems []string
	decoder := json.NewDecoder(strings.NewReader(out))
	for decoder.More() {
		var m struct{ Path, Error, Dir string }
		if err := decoder.Decode(&m); err != nil {
			return fmt.Errorf("reading the output of go mod download: %w", err)
		}
		if m.Error != "" {
			problems = append(problems, m.Error)
		} else if _, err := os.Stat(filepath.Join(m.Dir, "LICENSE")); err != nil {
			problems = append(problems, m.Path+" has no LICENSE, so that pkg.go.dev does not show its documentation")
		}
	}
	if len(problems) == 0 && err != nil {
		return err
	}
	// Modules in the module cache of the machine need no download. The go command verifies them like modules from a proxy.
	p.env = append(p.env, "GOMODCACHE="+filepath.Join(p.tmp, "cache"), "GOPROXY="+strings.Join([]string{
		fileURL(filepath.Join(tags, "cache", "download")), fileURL(filepath.Join(user["GOMODCACHE"], "cache", "download")), user["GOPROXY"],
	}, ","))
	return problem(problems)
}

func (p *proof) userEnv(ctx context.Context) (map[string]string, error) {
	out, err := command(ctx, p.dir, p.release.env, "go", "env", "-json", "GOMODCACHE", "GOPROXY", "GOSUMDB")
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	return env, json.Unmarshal([]byte(out), &env)
}

func fileURL(path string) string { return "file://" + filepath.ToSlash(path) }

// empty returns the directory of a new module that requires nothing.
func (p *proof) empty(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp(p.tmp, "user-")
	if err != nil {
		return "", err
	}
	_, err = command(ctx, dir, p.env, "go", "mod", "init", "user.example/program")
	return dir, err
}

// get adds the module alone to an empty module, and compiles the packages that users may import.
func (p *proof) get(ctx context.Context, m module) error {
	dir, err := p.empty(ctx)
	if err != nil {
		return err
	}
	if _, err := command(ctx, dir, p.env, "go", "get", m.Path+"@"+p.version); err != nil {
		return err
	}
	got, err := command(ctx, dir, p.env, "go", "list", "-m", "-f", "{{.Version}}", m.Path, p.core().Path)
	if err != nil {
		return err
	}
	for version := range strings.FieldsSeq(got) {
		if version != p.version {
			return fmt.Errorf("got %s with %s", version, p.core().Path)
		}
	}
	listed, err := command(ctx, dir, p.env, "go", "list", "-f", `{{if and (ne .Name "main") .GoFiles}}{{.ImportPath}}{{end}}`, m.Path+"/...")
	if err != nil {
		return err
	}
	args := []string{"build"}
	for pkg := range strings.FieldsSeq(listed) {
		if !strings.Contains(pkg+"/", "/internal/") {
			args = append(args, pkg)
		}
	}
	if len(args) == 1 {
		return fmt.Errorf("no package to import")
	}
	_, err = command(ctx, dir, p.env, "go", args...)
	return err
}

func (p *proof) program() string { return p.core().Path + "/cmd/luatx@" + p.version }

// install installs the luatx command, and checks the version that it prints.
func (p *proof) install(ctx context.Context) error {
	bin := filepath.Join(p.tmp, "bin")
	if _, err := command(ctx, p.tmp, append(p.env, "GOBIN="+bin), "go", "install", p.program()); err != nil {
		return err
	}
	printed, err := command(ctx, p.tmp, nil, filepath.Join(bin, "luatx"), "version")
	if err == nil && !strings.Contains(printed, p.version) {
		err = fmt.Errorf("luatx version printed %q", strings.TrimSpace(printed))
	}
	return err
}

// build compiles a program in a module that requires the version of the packages that the program imports, and returns the binary.
func (p *proof) build(ctx context.Context, source string) (binary string, err error) {
	dir, err := p.empty(ctx)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		return "", err
	}
	imported, err := imports(source)
	if err != nil {
		return "", err
	}
	args := []string{"get", p.core().Path + "@" + p.version}
	for _, pkg := range imported {
		if strings.HasPrefix(pkg, p.core().Path+"/") {
			args = append(args, pkg+"@"+p.version)
		}
	}
	if _, err := command(ctx, dir, p.env, "go", args...); err != nil {
		return "", err
	}
	binary = filepath.Join(p.tmp, "readme")
	_, err = command(ctx, dir, p.env, "go", "build", "-o", binary, ".")
	return binary, err
}
