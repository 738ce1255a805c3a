package docs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// A Page is the part of a Markdown file that the checks read.
type Page struct {
	Anchors map[string]bool // of headings, as GitHub forms them, and of HTML elements with an id or a name
	Links   []Link
	Blocks  []Block
}

// A Link is a reference of a page. Its line is counted from 1.
type Link struct {
	Line   int
	Target string
}

// A Block is a fenced code block: the number of its first line, counted from 1, the text behind the fence, and the
// code, which ends with a newline.
type Block struct {
	Line int
	Info string
	Text string
}

var (
	fence      = regexp.MustCompile("^ {0,3}(```+|~~~+)[ \t]*(.*?)[ \t]*$")
	heading    = regexp.MustCompile(`^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$`)
	codeSpan   = regexp.MustCompile("(?s)``.+?``|`[^`]+`")
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^()\s<>]*(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:[ \t]*<?(\S+?)>?(?:[ \t]|$)`)
	autoLink   = regexp.MustCompile(`<(https?:[^>\s]+)>`)
	attribute  = regexp.MustCompile(`(?i)<[a-z][^>]*?\s(?:href|src)\s*=\s*"([^"]*)"`)
	htmlAnchor = regexp.MustCompile(`(?i)<[a-z][^>]*?\s(?:id|name)\s*=\s*"([^"]*)"`)
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// Parse reads a page. It ignores links in code and in comments.
func Parse(text string) Page {
	page := Page{Anchors: map[string]bool{}}
	taken := map[string]int{}
	var prose strings.Builder // the page with all its lines, but without the text of its blocks
	var open string
	var block Block
	for i, line := range strings.Split(text, "\n") {
		mark := fence.FindStringSubmatch(line)
		switch {
		case open == "" && mark != nil:
			open, block = mark[1], Block{Line: i + 2, Info: mark[2]}
		case open != "" && mark != nil && mark[2] == "" && strings.HasPrefix(mark[1], open):
			open = ""
			page.Blocks = append(page.Blocks, block)
		case open != "":
			block.Text += line + "\n"
		default:
			if found := heading.FindStringSubmatch(line); found != nil {
				page.Anchors[unique(taken, slug(found[1]))] = true
			}
			prose.WriteString(line)
		}
		prose.WriteByte('\n')
	}
	plain := blank(comment, blank(codeSpan, prose.String()))
	for _, pattern := range []*regexp.Regexp{inlineLink, definition, autoLink, attribute} {
		for _, at := range pattern.FindAllStringSubmatchIndex(plain, -1) {
			line := 1 + strings.Count(plain[:at[2]], "\n")
			page.Links = append(page.Links, Link{Line: line, Target: plain[at[2]:at[3]]})
		}
	}
	for _, found := range htmlAnchor.FindAllStringSubmatch(plain, -1) {
		page.Anchors[found[1]] = true
	}
	return page
}

// blank replaces each match by spaces and keeps the line breaks.
func blank(pattern *regexp.Regexp, text string) string {
	return pattern.ReplaceAllStringFunc(text, func(match string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, match)
	})
}

// slug returns the anchor that GitHub gives a heading: its letters, digits, hyphens and underscores in lower case, with
// a hyphen for each space.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// unique distinguishes the anchors of a page: the second one of the same name ends in -1.
func unique(taken map[string]int, anchor string) string {
	n := taken[anchor]
	taken[anchor]++
	if n == 0 {
		return anchor
	}
	return fmt.Sprintf("%s-%d", anchor, n)
}
