// Package site holds the layout of the documentation site, and checks the links of its pages.
package site

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root       = "../.."
	repository = "https://github.com/luatx/luatx"
)

var (
	built = flag.String("site", "", "the directory of a site that .ci/docs built; without one, the test builds a site")

	reference = regexp.MustCompile(`\s(href|src)="?([^"\s>]*)`)
	anchor    = regexp.MustCompile(`\sid="?([^"\s>]+)`)
	heading   = regexp.MustCompile(`<h2>(.*?)</h2>`)
)

// problems returns the links of the pages that have no target, and those that make a browser load something from
// another site.
func problems(site fs.FS, inRepository func(file string) bool) (found []string, err error) {
	pages := map[string]string{}
	err = fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		text, err := fs.ReadFile(site, name)
		pages[name] = string(text)
		return err
	})
	for name, text := range pages {
		for _, link := range reference.FindAllStringSubmatch(text, -1) {
			if problem := problem(site, pages, name, link[1], link[2], inRepository); problem != "" {
				found = append(found, fmt.Sprintf("%s: %s %s", name, link[2], problem))
			}
		}
	}
	slices.Sort(found)
	return found, err
}

func problem(site fs.FS, pages map[string]string, page, attribute, link string, inRepository func(string) bool) string {
	to, err := url.Parse(link)
	switch {
	case err != nil:
		return "is not an address"
	case to.Scheme == "data":
		return ""
	case to.IsAbs():
		file, own := strings.CutPrefix(to.Path, "/luatx/luatx/blob/main/")
		switch {
		case attribute == "src":
			return "is loaded from another host"
		case own && to.Host == "github.com" && !inRepository(file):
			return "is not in the repository"
		}
		return ""
	case path.IsAbs(to.Path):
		return "begins at the root of the host"
	}
	file := page
	if to.Path != "" {
		file = path.Join(path.Dir(page), to.Path)
	}
	if info, err := fs.Stat(site, file); err != nil || info.IsDir() {
		return "is not a file of the site"
	}
	if to.Fragment == "" {
		return ""
	}
	for _, id := range anchor.FindAllStringSubmatch(pages[file], -1) {
		if id[1] == to.Fragment {
			return ""
		}
	}
	return "is not an anchor of the page"
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		`href="b.html"`:                              "",
		`href="b.html#there"`:                        "",
		`href="#here"`:                               "",
		`href="https://go.dev/x"`:                    "",
		`href="` + repository + `/blob/main/go.mod"`: "",
		`href="c.html"`:                              "is not a file",
		`href="../a.html"`:                           "is not a file",
		`href="img"`:                                 "is not a file",
		`src="img/b.png"`:                            "is not a file",
		`href="b.html#here"`:                         "is not an anchor",
		`href="#there"`:                              "is not an anchor",
		`href="/b.html"`:                             "begins at the root",
		`src="https://example.com/x.js"`:             "another host",
		`href="%zz"`:                                 "is not an address",
		`href="` + repository + `/blob/main/gone.mod"`: "is not in the repository",
	} {
		dir := t.TempDir()
		write(t, dir, "a.html", `<p id="here"><a `+link+`></a>`)
		write(t, dir, "b.html", `<p id="there">`)
		write(t, dir, "img/a.png", "")
		found, err := problems(os.DirFS(dir), func(file string) bool { return file == "go.mod" })
		switch {
		case err != nil:
			t.Fatal(err)
		case want == "" && len(found) > 0, want != "" && (len(found) != 1 || !strings.Contains(found[0], want)):
			t.Errorf("problems of %s: %q, want %q", link, found, want)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSiteHasEveryPageAndNoBrokenLinks(t *testing.T) {
	t.Parallel()
	dir := *built
	if dir == "" {
		dir = t.TempDir()
		if out, err := exec.Command(root+"/.ci/docs", dir, "HEAD").CombinedOutput(); err != nil {
			t.Fatalf("building the site: %v\n%s", err, out)
		}
	}
	site := os.DirFS(dir)

	t.Run("has no broken links", func(t *testing.T) {
		found, err := problems(site, func(file string) bool {
			_, err := os.Stat(filepath.Join(root, file))
			return err == nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range found {
			if strings.HasPrefix(problem, "main/") || strings.HasPrefix(problem, "index.html") { // older pages keep their links
				t.Error(problem)
			}
		}
	})
	t.Run("has a page for every file of docs", func(t *testing.T) {
		pages, err := filepath.Glob(root + "/docs/*.md")
		if err != nil || len(pages) < 2 {
			t.Fatalf("found the pages %q, error %v", pages, err)
		}
		for _, page := range pages {
			name := strings.TrimSuffix(filepath.Base(page), ".md")
			if name == "README" {
				name = "index"
			}
			if text := read(t, site, "main/"+name+".html"); strings.Contains(text, "<title> ·") || !strings.Contains(text, "<h1") {
				t.Errorf("the page of %s has no title", page)
			}
		}
	})
	t.Run("lists the pages in the order of docs/README.md", func(t *testing.T) {
		var sections []string
		_, contents, _ := strings.Cut(read(t, site, "main/adr/index.html"), `<nav id="contents"`)
		for _, found := range heading.FindAllStringSubmatch(contents, -1) {
			sections = append(sections, found[1])
		}
		want := []string{"Getting started", "Concepts", "How-to guides", "Reference", "Explanation"}
		if !slices.Equal(sections, want) {
			t.Errorf("sections %q, want %q", sections, want)
		}
	})
	t.Run("can be searched", func(t *testing.T) {
		var sections []struct{ Address, Title, Heading, Text string }
		text := strings.TrimSpace(read(t, site, "main/search-index.js"))
		text = strings.TrimSuffix(strings.TrimPrefix(text, "searchIndex("), ")")
		if err := json.Unmarshal([]byte(text), &sections); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, section := range sections {
			page, id, _ := strings.Cut(section.Address, "#")
			if !strings.Contains(read(t, site, "main/"+page), `id="`+id+`"`) {
				t.Errorf("the index names %s, which does not exist", section.Address)
			}
			found = found || section.Address == "concepts.html#terms" && section.Title == "Concepts" && section.Heading == "Terms" && strings.Contains(section.Text, "ordering key")
		}
		if !found {
			t.Error("the index lacks the terms of concepts.md")
		}
	})
	t.Run("leads to every version", func(t *testing.T) {
		versions, err := fs.Glob(site, "*/index.html")
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range versions {
			for _, to := range versions {
				if !strings.Contains(read(t, site, from), `"../`+to+`"`) {
					t.Errorf("%s has no link to %s", from, to)
				}
			}
		}
	})
}

func read(t *testing.T, site fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(site, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
