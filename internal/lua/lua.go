// Package lua holds the scripts of luatx. Each file is one atomic step. Files whose name begins with _ are fragments
// that scripts share.
//
// Directives at the head of a file state how it is composed:
//
//	--#needs _time undos()                the fragments, and the functions of lazy ones, that the file uses
//	--#defines enqueue keep_events        the names of a fragment that other files may use
//	--#lazy undos(unread excuse) _undo    a function that returns a table of these names; its first call runs the fragments
//
// A name with a sigil, such as @ENTRIES, stands for a key, a code or a constant of the Transactor. See layout.go.
package lua

import (
	"embed"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

var sigil = regexp.MustCompile(`@[A-Z][A-Z0-9_]*`)

// Script returns the text of a script, preceded by the fragments that it needs.
func Script(name string, constants map[string]string) string {
	c := composer{}
	c.script(name)
	return Substitute(c.text.String(), Keys(name), constants)
}

// Fragment returns the text of a fragment.
func Fragment(name string) string {
	_, body := read(name)
	return body
}

// Substitute replaces every @NAME in a text by the constant of that name, by a code, or by one of the script's keys. It leaves an
// undeclared name unchanged, and Redis then rejects the script.
func Substitute(text string, keys []string, constants map[string]string) string {
	return sigil.ReplaceAllStringFunc(text, func(word string) string {
		word = word[1:]
		if value, ok := constants[word]; ok {
			return value
		}
		if value, ok := codes[word]; ok {
			return value
		}
		if i := slices.IndexFunc(keys, func(key string) bool { return slot(key) == word }); i >= 0 {
			return keyAt(i)
		}
		return "@" + word
	})
}

// composer assembles the text of a script from its files.
type composer struct {
	text strings.Builder
	done []string
}

func (c *composer) script(name string) {
	head, body := read(name)
	lazies := head.all("lazy")
	if len(lazies) > 0 {
		// A script creates its functions on each run, which takes time. Functions that few transactions need are
		// created on demand.
		names := make([]string, len(lazies))
		for i, lazy := range lazies {
			names[i], _, _ = strings.Cut(lazy, "(")
		}
		c.text.WriteString("local made = {}\nlocal " + strings.Join(names, ", ") + "\n")
	}
	c.needs(head)
	for _, lazy := range lazies {
		c.lazy(lazy)
	}
	c.text.WriteString(body)
}

// needs writes the fragments that a file needs, each once, and before it those that the fragment needs.
func (c *composer) needs(head directives) {
	for _, need := range head.words("needs") {
		if strings.HasSuffix(need, "()") || slices.Contains(c.done, need) {
			continue
		}
		head, body := read(need)
		c.needs(head)
		c.done = append(c.done, need)
		c.text.WriteString(body)
	}
}

// lazy writes a function that returns a table of the names that fragments define.
func (c *composer) lazy(directive string) {
	name, rest, _ := strings.Cut(directive, "(")
	defined, fragments, _ := strings.Cut(rest, ")")
	c.text.WriteString("function " + name + "()\nif made." + name + " then return made." + name + " end\n")
	for fragment := range strings.FieldsSeq(fragments) {
		_, body := read(fragment)
		c.text.WriteString(body)
	}
	c.text.WriteString("made." + name + " = {")
	for d := range strings.FieldsSeq(defined) {
		c.text.WriteString(d + " = " + d + ", ")
	}
	c.text.WriteString("}\nreturn made." + name + "\nend\n")
}

// directives are the lines of a file that begin with --#, without this prefix.
type directives []string

func (d directives) all(kind string) (values []string) {
	for _, line := range d {
		if value, ok := strings.CutPrefix(line, kind+" "); ok {
			values = append(values, value)
		}
	}
	return values
}

func (d directives) words(kind string) []string {
	return strings.Fields(strings.Join(d.all(kind), " "))
}

// source is a file, split into its directives and the rest.
type source struct {
	head directives
	body string
}

// sources are read once, because every Transactor composes all scripts.
var sources = sync.OnceValue(func() map[string]source {
	all := map[string]source{}
	names, _ := fs.Glob(files, "*.lua") // only a malformed pattern is an error
	for _, name := range names {
		text, _ := files.ReadFile(name)
		var s source
		var body strings.Builder
		for line := range strings.Lines(string(text)) {
			if directive, ok := strings.CutPrefix(line, "--#"); ok {
				s.head = append(s.head, strings.TrimSpace(directive))
			} else {
				body.WriteString(line)
			}
		}
		s.body = body.String() + "\n"
		all[strings.TrimSuffix(name, ".lua")] = s
	}
	return all
})

func read(name string) (head directives, body string) {
	s, ok := sources()[name]
	if !ok {
		// The names are constants of this module, and its tests compose every script.
		return nil, "error('no script " + name + "')\n"
	}
	return s.head, s.body
}
