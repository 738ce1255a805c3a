package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ownUse are the trees whose modules only this repository uses. They get no tags.
var ownUse = []string{"admin/browsertest", "bench", "contrib/prometheus/promqltest", "examples", "matrix", "torture"}

// A module is one of the modules of go.work.
type module struct {
	Dir     string // relative to the top of the repository, "." for the core
	Path    string
	Require map[string]string // the version of each module of this repository that it requires
}

// published reports whether users fetch the module.
func (m module) published() bool {
	return !slices.ContainsFunc(ownUse, func(tree string) bool { return m.Dir == tree || strings.HasPrefix(m.Dir, tree+"/") })
}

// tag returns the name of the tag under which the go command looks for a version of the module.
func (m module) tag(version string) string { return path.Join(m.Dir, version) }

// readModules returns the modules that the go.work of dir names, the core first.
func readModules(ctx context.Context, dir string) ([]module, error) {
	dir, err := filepath.Abs(dir) // it becomes the working directory of the go command
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := readJSON(ctx, &work, dir, "work", "edit", "-json", filepath.Join(dir, "go.work")); err != nil {
		return nil, err
	}
	var modules []module
	for _, use := range work.Use {
		m := module{Dir: path.Clean(use.DiskPath), Require: map[string]string{}}
		var file struct {
			Module  struct{ Path string }
			Require []struct{ Path, Version string }
		}
		if err := readJSON(ctx, &file, dir, "mod", "edit", "-json", filepath.Join(dir, m.Dir, "go.mod")); err != nil {
			return nil, err
		}
		m.Path = file.Module.Path
		for _, require := range file.Require {
			m.Require[require.Path] = require.Version
		}
		modules = append(modules, m)
	}
	core := slices.IndexFunc(modules, func(m module) bool { return m.Dir == "." })
	if core < 0 {
		return nil, fmt.Errorf("go.work does not name the module at the top of the repository; add \".\" to it")
	}
	modules[0], modules[core] = modules[core], modules[0]
	for _, m := range modules {
		for required := range m.Require {
			if !slices.ContainsFunc(modules, func(own module) bool { return own.Path == required }) {
				delete(m.Require, required)
			}
		}
	}
	return modules, nil
}

func readJSON(ctx context.Context, to any, dir string, args ...string) error {
	text, err := command(ctx, dir, nil, "go", args...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), to)
}

// otherVersions returns a problem for each module that requires another version of a module of this repository.
func otherVersions(modules []module, version string) []string {
	var problems []string
	for _, m := range modules {
		for required, has := range m.Require {
			if has != version {
				problems = append(problems, fmt.Sprintf("%s requires %s %s, not %s; run make release", path.Join(m.Dir, "go.mod"), required, has, version))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// setVersions makes every module below dir require the version of the other modules of this repository.
func setVersions(ctx context.Context, dir string, modules []module, version string) error {
	for _, m := range modules {
		args := []string{"mod", "edit"}
		for required := range m.Require {
			args = append(args, "-require="+required+"@"+version)
		}
		if len(args) == 2 {
			continue
		}
		if _, err := command(ctx, dir, nil, "go", append(args, filepath.Join(dir, m.Dir, "go.mod"))...); err != nil {
			return err
		}
	}
	return nil
}
