package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/test/assert"
)

func TestCreateTagsPublishedModulesAtACommitThatRequiresTheVersion(t *testing.T) {
	t.Parallel()
	dir := repository(t, nil)
	r, out := opened(t, dir, "v0.1.0")
	assert.Must(t, r.create(t.Context()))
	assert.Equal(t, git(t, dir, "tag"), "contrib/a/v0.1.0\nv0.1.0", "the tags")
	assert.Equal(t, git(t, dir, "status", "--porcelain"), "", "the changes of the tree")
	head := git(t, dir, "rev-parse", "HEAD")
	for _, tag := range []string{"v0.1.0", "contrib/a/v0.1.0"} {
		assert.Equal(t, git(t, dir, "rev-parse", tag+"^{commit}"), head, "the commit of %s", tag)
	}
	for _, file := range []string{"contrib/a/go.mod", "bench/go.mod"} {
		if text := git(t, dir, "show", "v0.1.0:"+file); !strings.Contains(text, "require "+core+" v0.1.0\n") {
			t.Errorf("%s does not require the version:\n%s", file, text)
		}
	}
	for _, want := range []string{
		"ok  go get " + core + "@v0.1.0\n", "ok  go get " + core + "/contrib/a@v0.1.0\n",
		"ok  go install " + core + "/cmd/luatx@v0.1.0\n", "ok  go build of the first program of README.md\n",
		"git push origin HEAD contrib/a/v0.1.0\n", "git push origin v0.1.0\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	again, _ := opened(t, dir, "v0.1.0")
	assert.Must(t, again.verify(t.Context()))
}

func TestCreateMakesNoCommitIfModulesRequireTheVersion(t *testing.T) {
	t.Parallel()
	dir := repository(t, map[string]string{
		"contrib/a/go.mod": strings.Replace(tiny["contrib/a/go.mod"], "v0.0.1", "v0.1.0", 1),
		"bench/go.mod":     strings.Replace(tiny["bench/go.mod"], "v0.0.1", "v0.1.0", 1),
	})
	r, _ := opened(t, dir, "v0.1.0")
	assert.Must(t, r.create(t.Context()))
	assert.Equal(t, git(t, dir, "rev-list", "--count", "v0.1.0"), "1", "the number of commits")
}

func TestCreateReportsReadmeWithoutProgram(t *testing.T) {
	t.Parallel()
	r, out := opened(t, repository(t, map[string]string{"README.md": "# tiny\n"}), "v0.1.0")
	assert.Must(t, r.create(t.Context()))
	if want := "--  README.md has no Go block that is a complete package main"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

func TestCreateLeavesRepositoryUnchangedIfProofFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		changes map[string]string
		want    string
	}{
		"a module requires one that is not published": {map[string]string{
			"contrib/a/go.mod": "module " + core + "/contrib/a\n\ngo 1.26.0\n\nrequire (\n\t" + core + " v0.0.1\n\t" + core + "/bench v0.0.1\n)\n",
			"contrib/a/b.go":   "package a\n\nimport _ \"" + core + "/bench\"\n",
		}, "go get " + core + "/contrib/a@v0.1.0: "},
		"a module does not compile": {map[string]string{"contrib/a/b.go": "package a\n\nvar _ int = \"\"\n"}, "go get " + core + "/contrib/a@v0.1.0: go build"},
		"a module has no package":   {map[string]string{"contrib/a/a.go": "package main\n\nfunc main() {}\n"}, "no package to import"},
		"the core does not compile": {map[string]string{"b.go": "package tiny\n\nvar _ int = \"\"\n"}, "go get " + core + "@v0.1.0: go build"},
		"the core has a replace directive": {map[string]string{
			"go.mod": tiny["go.mod"] + "\nreplace example.com/x => ./x\n",
		}, "go install " + core + "/cmd/luatx@v0.1.0: "},
		"the command prints another version": {map[string]string{
			"cmd/luatx/main.go": "package main\n\nfunc main() { println(1) }\n",
		}, "luatx version printed"},
		"the program of the README does not compile": {map[string]string{
			"README.md": fence + "go\npackage main\n\nfunc main() { missing() }\n" + fence + "\n",
		}, "go build of the first program of README.md: "},
		"there is no licence": {map[string]string{"LICENSE": ""}, core + " has no LICENSE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := repository(t, test.changes)
			head := git(t, dir, "rev-parse", "HEAD")
			r, _ := opened(t, dir, "v0.1.0")
			assert.ErrorContains(t, r.create(t.Context()), test.want, "create")
			wantUnchanged(t, dir, head)
		})
	}
}

func TestCreateLeavesRepositoryUnchangedIfItsBranchHasMovedOn(t *testing.T) {
	t.Parallel()
	dir, clone := repository(t, nil), t.TempDir()
	r, _ := opened(t, dir, "v0.1.0")
	assert.Must(t, r.clone(t.Context(), clone), r.commit(t.Context(), clone), r.tag(t.Context(), clone))
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message", "later")
	head := git(t, dir, "rev-parse", "HEAD")
	assert.ErrorContains(t, r.take(t.Context(), clone), "git merge", "take")
	wantUnchanged(t, dir, head)
}

func TestCreateReportsEachMissingPartOnOneLine(t *testing.T) {
	t.Parallel()
	dir := repository(t, map[string]string{"CHANGELOG.md": "# Changelog\n"})
	git(t, dir, "tag", "contrib/a/v0.1.0")
	write(t, dir, "new.go", "package tiny\n")
	r, _ := opened(t, dir, "v0.1.0")
	err := r.create(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"the working tree has 1 changes, such as \"?? new.go\"", "CHANGELOG.md has no section ## [Unreleased]",
		"CHANGELOG.md has no section ## [0.1.0]", "the tag contrib/a/v0.1.0 exists",
	}
	lines := strings.Split(err.Error(), "\n")
	assert.Equal(t, len(lines), len(want), "the number of lines of %q", lines)
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %q, want %q", line, want[i])
		}
	}
	assert.Equal(t, git(t, dir, "tag"), "contrib/a/v0.1.0", "the tags")
}

func TestVerifyRejectsTagsThatDoNotMatch(t *testing.T) {
	t.Parallel()
	dir := repository(t, nil)
	git(t, dir, "tag", "contrib/a/v0.1.0")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message", "later")
	r, _ := opened(t, dir, "v0.1.0")
	err := r.verify(t.Context())
	for _, want := range []string{
		"contrib/a/go.mod requires " + core + " v0.0.1, not v0.1.0", "bench/go.mod requires",
		"the tag v0.1.0 is missing", "the tag contrib/a/v0.1.0 names ",
	} {
		assert.ErrorContains(t, err, want, "verify")
	}
}

func TestVersionsThatUsersCannotFetchAreRejected(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v0.1.0", "v1.20.3", "v0.1.0-rc.1", "v0.1.0-0a"} {
		if _, err := open(t.Context(), filepath.Join("..", ".."), version, &bytes.Buffer{}); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	for _, version := range []string{"", "0.1.0", "v0.1", "v2.0.0", "v0.01.0", "v0.1.0+dirty", "v0.1.0-", "v0.1.0-rc.01", "v0.1.0 ", "v0.1.0\n"} {
		_, err := open(t.Context(), ".", version, &bytes.Buffer{})
		assert.ErrorContains(t, err, "is not a version", "%q", version)
	}
}

func TestModulesOfThisRepositoryRequireOneVersion(t *testing.T) {
	t.Parallel()
	modules, err := readModules(t.Context(), filepath.Join("..", ".."))
	assert.Must(t, err)
	version := ""
	for _, m := range modules[1:] {
		version = max(version, m.Require[modules[0].Path])
	}
	if !versionForm.MatchString(version) || version == "v0.0.0" {
		t.Errorf("the modules require %s %s, want a version that can be released", modules[0].Path, version)
	}
	for _, problem := range otherVersions(modules, version) {
		t.Error(problem)
	}
}

func TestChangelogProblemsAreFound(t *testing.T) {
	t.Parallel()
	const unreleased, entries = "# Changelog\n\n## [Unreleased]\n\n", "\n### Added\n\n- All of it.\n\n## [0.0.9] - 2026-01-01\n\n- Less.\n"
	for name, test := range map[string]struct{ text, want string }{
		"complete":          {unreleased + "## [0.1.0] - 2026-11-25\n" + entries, ""},
		"spaces":            {"## [Unreleased] \n## [0.1.0] - 2026-11-25 \n" + entries, ""},
		"no unreleased":     {"## [0.1.0] - 2026-11-25\n" + entries, "no section ## [Unreleased]"},
		"unreleased, full":  {unreleased + "- More.\n\n## [0.1.0] - 2026-11-25\n" + entries, "entries under [Unreleased]"},
		"no section":        {unreleased + "## [0.1.0-rc.1] - 2026-11-25\n" + entries, "no section ## [0.1.0] - YYYY-MM-DD"},
		"mentioned in text": {unreleased + "## [0.0.9] - 2026-01-01\n\n- See ## [0.1.0] - 2026-11-25\n", "no section ## [0.1.0] - YYYY-MM-DD"},
		"no date":           {unreleased + "## [0.1.0]\n" + entries, "no date for [0.1.0]"},
		"no such date":      {unreleased + "## [0.1.0] - 2026-02-30\n" + entries, "no date for [0.1.0]"},
		"nothing but links": {unreleased + "## [0.1.0] - 2026-11-25\n\n[0.1.0]: https://example.com\n", "no entries under [0.1.0]"},
		"empty":             {unreleased + "## [0.1.0] - 2026-11-25\n\n## [0.0.9] - 2026-01-01\n\n- Less.\n", "no entries under [0.1.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := changelogProblems(test.text, "v0.1.0")
			switch {
			case test.want == "":
				assert.Equal(t, len(problems), 0, "the number of problems %q", problems)
			case len(problems) != 1 || !strings.Contains(problems[0], test.want):
				t.Errorf("problems %q, want one with %q", problems, test.want)
			}
		})
	}
}
