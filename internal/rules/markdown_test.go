package rules

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/docs"
)

// markdownProblems checks the links of the pages: the file must exist, and the page must have the anchor. It checks
// the form of a link to the network but does not fetch it, because tests must work without a network.
func markdownProblems(pages map[string]docs.Page, exists func(name string) bool) []string {
	var problems []string
	for name, page := range pages {
		for _, link := range page.Links {
			if problem := linkProblem(name, link.Target, pages, exists); problem != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: the link %s %s", name, link.Line, link.Target, problem))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

func linkProblem(page, target string, pages map[string]docs.Page, exists func(name string) bool) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return "is no address: " + err.Error()
	case u.Scheme == "mailto":
		return ""
	case u.Scheme == "http" || u.Scheme == "https":
		if !strings.Contains(u.Hostname(), ".") && u.Hostname() != "localhost" {
			return "names no host"
		}
		return ""
	case u.Scheme != "" || u.Host != "":
		return "has the scheme " + u.Scheme + ", not https"
	case strings.HasPrefix(u.Path, "/"):
		return "begins at the root, which is another one on every machine"
	}
	name := page
	if u.Path != "" {
		name = path.Join(path.Dir(page), u.Path)
	}
	if !exists(name) {
		return "leads to " + name + ", which is not there"
	}
	if to, ok := pages[name]; u.Fragment != "" && ok && !to.Anchors[u.Fragment] {
		return "has no heading to go to in " + name
	}
	return ""
}

// unreachable returns the pages that no path of links from the first page reaches.
func unreachable(pages map[string]docs.Page, first string) []string {
	seen, next := map[string]bool{first: true}, []string{first}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		for _, link := range pages[name].Links {
			target, _, _ := strings.Cut(link.Target, "#")
			to := path.Join(path.Dir(name), target)
			if _, ok := pages[to]; ok && target != "" && !seen[to] {
				seen[to], next = true, append(next, to)
			}
		}
	}
	var problems []string
	for name := range pages {
		if !seen[name] {
			problems = append(problems, fmt.Sprintf("no links lead from %s to %s", first, name))
		}
	}
	slices.Sort(problems)
	return problems
}

func TestMarkdownProblemsAreFound(t *testing.T) {
	t.Parallel()
	pages := map[string]docs.Page{
		"README.md": docs.Parse("# One two\n\n# `a_b`: C, D\n\n# One two\n"),
	}
	tests := []struct{ name, text, want string }{
		{"file", "[x](../README.md)", ""},
		{"directory", "[x](../docs)", ""},
		{"anchor", "[x\ny](../README.md#one-two)", ""},
		{"second of a name", "[x](../README.md#one-two-1)", ""},
		{"code and punctuation", "[x](../README.md#a_b-c-d)", ""},
		{"own anchor", "# Here\n[x](#here)", ""},
		{"named element", "<a name=\"there\"></a>[x](#there)", ""},
		{"the net", "[x](https://redis.io/docs?a=b#c) <https://go.dev>", ""},
		{"in a block", "```\n[x](gone.md)\n```\n", ""},
		{"in a span", "`[x](gone.md)` <!-- [x](gone.md) -->", ""},
		{"no file", "a\n\n[x](gone.md)", "a.md:3: the link gone.md leads to docs/gone.md"},
		{"behind a span", "`a` b `c`\n[x](gone.md \"title\")", "leads to docs/gone.md"},
		{"no picture", "![x](img/gone.svg)", "leads to docs/img/gone.svg"},
		{"definition", "[x]: gone.md", "leads to docs/gone.md"},
		{"element", "<img src=\"gone.png\">", "leads to docs/gone.png"},
		{"no anchor", "[x](../README.md#three)", "has no heading"},
		{"third of a name", "[x](../README.md#one-two-2)", "has no heading"},
		{"heading in a block", "```\n# Here\n```\n[x](#here)", "has no heading"},
		{"no host", "[x](https:/redis.io)", "names no host"},
		{"scheme", "[x](ftp://redis.io/x)", "scheme ftp"},
		{"no address", "[x](https://redis.io/%zz)", "is no address"},
		{"root", "[x](/docs/a.md)", "begins at the root"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all := map[string]docs.Page{"README.md": pages["README.md"], "docs/a.md": docs.Parse(test.text)}
			wantProblem(t, markdownProblems(all, func(name string) bool {
				return name == "README.md" || name == "docs" || name == "docs/a.md"
			}), test.want)
		})
	}
}

func TestUnreachablePagesAreFound(t *testing.T) {
	t.Parallel()
	pages := map[string]docs.Page{
		"README.md": docs.Parse("[x](docs/a.md#b)"),
		"docs/a.md": docs.Parse("[x](b.md)"),
		"docs/b.md": docs.Parse("[x](../README.md)"),
	}
	wantProblem(t, unreachable(pages, "README.md"), "")
	pages["docs/c.md"] = docs.Parse("[x](a.md)")
	wantProblem(t, unreachable(pages, "README.md"), "docs/c.md")
}

// pagesOf parses all pages of the tree.
func pagesOf(t *testing.T) map[string]docs.Page {
	t.Helper()
	pages := map[string]docs.Page{}
	for _, name := range trackedFiles(t, ".md") {
		pages[name] = docs.Parse(read(t, name))
	}
	if len(pages["README.md"].Links) == 0 {
		t.Fatal("no link was found in README.md: the rule would hold nothing")
	}
	return pages
}

func TestLinksOfPagesWork(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, name := range trackedFiles(t, "") {
		for ; !there[name]; name = path.Dir(name) { // and its directories
			there[name] = true
		}
	}
	report(t, markdownProblems(pagesOf(t), func(name string) bool { return there[name] }))
}

func TestEveryPageIsReachable(t *testing.T) {
	t.Parallel()
	report(t, unreachable(pagesOf(t), "README.md"))
}
