package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A release is a version of every module of a repository.
type release struct {
	dir     string // the top of the repository
	version string
	modules []module // the core first
	out     io.Writer
	env     []string // variables of the go command, which replace those of the process
}

func open(ctx context.Context, dir, version string, out io.Writer) (*release, error) {
	if !versionForm.MatchString(version) {
		return nil, fmt.Errorf("%q is not a version; use v0.MINOR.PATCH or v1.MINOR.PATCH, with a pre-release such as -rc.1 if it is one", version)
	}
	modules, err := readModules(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &release{dir: dir, version: version, modules: modules, out: out}, nil
}

func (r *release) core() module { return r.modules[0] }

func (r *release) published() []module {
	var published []module
	for _, m := range r.modules {
		if m.published() {
			published = append(published, m)
		}
	}
	return published
}

// verify checks and proves existing tags.
func (r *release) verify(ctx context.Context) error {
	problems := otherVersions(r.modules, r.version)
	if err := r.check(ctx, problems, r.checkTags); err != nil {
		return err
	}
	return r.prove(ctx, r.dir)
}

// create commits the version to the go.mod files, proves the commit, and tags it. If it fails, the repository is unchanged.
func (r *release) create(ctx context.Context) error {
	if err := r.check(ctx, nil, r.checkNoTags); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "luatx-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	clone := filepath.Join(tmp, "clone")
	for _, step := range []func(ctx context.Context, clone string) error{r.clone, r.commit, r.tag, r.prove, r.take} {
		if err := step(ctx, clone); err != nil {
			return err
		}
	}
	var nested []string
	for _, m := range r.published()[1:] {
		nested = append(nested, m.tag(r.version))
	}
	// GitHub starts no workflow for a push of more than three tags.
	fmt.Fprintf(r.out, "%s is tagged in this clone. To publish it, push the branch and the tags of the nested modules, then %s alone:\n  git push origin HEAD %s\n  git push origin %s\n",
		r.version, r.version, strings.Join(nested, " "), r.version)
	return nil
}

// check returns all problems of the repository in one error, with one line for each.
func (r *release) check(ctx context.Context, problems []string, checkTags func(context.Context) ([]string, error)) error {
	for _, check := range []func(context.Context) ([]string, error){
		r.checkTree, func(context.Context) ([]string, error) { return r.checkChangelog() }, checkTags,
	} {
		found, err := check(ctx)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	return problem(problems)
}

// clone copies the commit that is checked out, and the identity of the committer.
func (r *release) clone(ctx context.Context, clone string) error {
	if _, err := command(ctx, r.dir, nil, "git", "clone", "--quiet", "--no-tags", r.dir, clone); err != nil {
		return err
	}
	for _, key := range []string{"user.name", "user.email"} {
		value, err := command(ctx, r.dir, nil, "git", "config", "--default", "", "--get", key)
		if value = strings.TrimSpace(value); err != nil || value == "" {
			continue // git reports a missing value if it needs it
		}
		if _, err := command(ctx, clone, nil, "git", "config", key, value); err != nil {
			return err
		}
	}
	return nil
}

// commit commits the version to the go.mod files, unless they already have it.
func (r *release) commit(ctx context.Context, clone string) error {
	if len(otherVersions(r.modules, r.version)) == 0 {
		return nil
	}
	if err := setVersions(ctx, clone, r.modules, r.version); err != nil {
		return err
	}
	_, err := command(ctx, clone, nil, "git", "commit", "--quiet", "--all", "--message", "Modules require "+r.version+" of each other")
	return err
}

func (r *release) tag(ctx context.Context, clone string) error {
	for _, m := range r.published() {
		if _, err := command(ctx, clone, nil, "git", "tag", "--annotate", "--message", m.Path+" "+r.version, m.tag(r.version)); err != nil {
			return err
		}
	}
	return nil
}

// take copies the commit and the tags of the clone into the repository, without any other change.
func (r *release) take(ctx context.Context, clone string) error {
	if _, err := command(ctx, r.dir, nil, "git", "fetch", "--quiet", "--no-tags", clone, "HEAD"); err != nil {
		return err
	}
	if _, err := command(ctx, r.dir, nil, "git", "merge", "--quiet", "--ff-only", "FETCH_HEAD"); err != nil {
		return err
	}
	args := []string{"fetch", "--quiet", "--no-tags", "--atomic", clone}
	for _, m := range r.published() {
		ref := "refs/tags/" + m.tag(r.version)
		args = append(args, ref+":"+ref)
	}
	_, err := command(ctx, r.dir, nil, "git", args...)
	return err
}
