package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// versionForm matches the versions of a module whose path has no version: semantic versions of major version 0 or 1,
// without build metadata.
var versionForm = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-` + identifier + `(\.` + identifier + `)*)?$`)

// identifier matches an identifier of a pre-release version. A number has no leading zero.
const identifier = `(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)`

// problem returns an error with one line for each problem, or nil if there is none.
func problem(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// checkTree returns a problem if the working tree differs from its commit.
func (r *release) checkTree(ctx context.Context) ([]string, error) {
	status, err := command(ctx, r.dir, nil, "git", "status", "--porcelain")
	if err != nil || status == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("the working tree has %d changes, such as %q; commit or remove them",
		strings.Count(status, "\n"), strings.TrimSpace(status[:strings.Index(status, "\n")]))}, nil
}

// checkChangelog returns what CHANGELOG.md lacks for the version.
func (r *release) checkChangelog() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	return changelogProblems(string(text), r.version), nil
}

func changelogProblems(text, version string) []string {
	var problems []string
	switch _, body, ok := section(text, "Unreleased"); {
	case !ok:
		problems = append(problems, "CHANGELOG.md has no section ## [Unreleased]; add an empty one")
	case body != "":
		problems = append(problems, "CHANGELOG.md has entries under [Unreleased]; move them to the section of the version")
	}
	name := strings.TrimPrefix(version, "v")
	date, body, ok := section(text, name)
	switch _, err := time.Parse(" - "+time.DateOnly, date); {
	case !ok:
		return append(problems, fmt.Sprintf("CHANGELOG.md has no section ## [%s] - YYYY-MM-DD; turn [Unreleased] into it", name))
	case err != nil:
		problems = append(problems, fmt.Sprintf("CHANGELOG.md has no date for [%s]; write ## [%s] - YYYY-MM-DD", name, name))
	}
	if body == "" {
		problems = append(problems, fmt.Sprintf("CHANGELOG.md has no entries under [%s]; list what the version changes", name))
	}
	return problems
}

// definition matches a line that defines the target of a link. Such lines end a changelog, and are not entries.
var definition = regexp.MustCompile(`(?m)^\[[^\]]+\]: .*$`)

// section returns the rest of a section's heading after its name, and the text of the section.
func section(changelog, name string) (heading, body string, ok bool) {
	_, rest, ok := strings.Cut("\n"+changelog, "\n## ["+name+"]")
	heading, rest, _ = strings.Cut(rest, "\n")
	body, _, _ = strings.Cut("\n"+definition.ReplaceAllString(rest, ""), "\n## ")
	return strings.TrimRight(heading, " "), strings.TrimSpace(body), ok
}

// tagCommit returns the commit that a tag names, or "" if there is no such tag.
func (r *release) tagCommit(ctx context.Context, tag string) (string, error) {
	out, err := command(ctx, r.dir, nil, "git", "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+tag)
	if err != nil {
		return "", err
	}
	if fields := strings.Fields(out); len(fields) > 0 {
		return fields[len(fields)-1], nil // an annotated tag has two objects: itself and its commit
	}
	return "", nil
}

// checkNoTags returns a problem for each tag of the version that exists.
func (r *release) checkNoTags(ctx context.Context) ([]string, error) {
	var problems []string
	for _, m := range r.published() {
		commit, err := r.tagCommit(ctx, m.tag(r.version))
		if err != nil {
			return nil, err
		}
		if commit != "" {
			problems = append(problems, fmt.Sprintf("the tag %s exists; choose another version, or delete the tag if nobody has fetched it", m.tag(r.version)))
		}
	}
	return problems, nil
}

// checkTags returns a problem for each tag of the version that does not name the commit that is checked out.
func (r *release) checkTags(ctx context.Context) ([]string, error) {
	head, err := command(ctx, r.dir, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, m := range r.published() {
		switch commit, err := r.tagCommit(ctx, m.tag(r.version)); {
		case err != nil:
			return nil, err
		case commit == "":
			problems = append(problems, fmt.Sprintf("the tag %s is missing; push the tags of all modules before %s", m.tag(r.version), r.version))
		case commit != strings.TrimSpace(head):
			problems = append(problems, fmt.Sprintf("the tag %s names %s, not the commit that is checked out", m.tag(r.version), commit))
		}
	}
	return problems, nil
}
