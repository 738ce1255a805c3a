package docs

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// keyFiles declare a shard's keys as constants. The comment of each constant begins with the type of the key.
var keyFiles = []string{"internal/shard/keys.go", "internal/shard/sweep.go", "internal/shard/pause.go", "internal/shard/plans.go"}

//go:embed keys.tmpl
var keysText string

var keysPage = template.Must(template.New("keys").Funcs(template.FuncMap{
	"sentence": sentence, "escape": escaper.Replace, "cell": cell,
}).Parse(keysText))

// A Key is a constant of keyFiles.
type Key struct{ Name, Type, Meaning string }

// A Script is the header of a script in internal/lua/.
type Script struct {
	Name    string
	Purpose string // one paragraph
	Layout  string // the lines from KEYS on, unchanged
}

// Link returns the Markdown link from the page to the script.
func (s Script) Link() string { return fmt.Sprintf("[%s.lua](../internal/lua/%s.lua)", s.Name, s.Name) }

// Shown returns the layout without the line that the page states once for all scripts.
func (s Script) Shown() string { return strings.Replace(s.Layout, "Redis:   6.0\n", "", 1) }

// Header reads the header of a script. In a fragment, an empty line ends the header, and the comment after it is for
// readers of the file.
func Header(name, source string) Script {
	s := Script{Name: name}
	for line := range strings.Lines(source) {
		text, ok := strings.CutPrefix(line, "--")
		text = strings.TrimPrefix(text, " ")
		purpose, begins := strings.CutPrefix(text, "Purpose:")
		switch {
		case !ok || text == "\n" && strings.HasPrefix(name, "_"):
			return s
		case strings.HasPrefix(text, "#"): // a directive: how the file is composed
		case s.Layout != "" || strings.HasPrefix(text, "KEYS:"):
			s.Layout += text
		case begins || s.Purpose != "":
			s.Purpose = strings.TrimSpace(s.Purpose + " " + strings.TrimSpace(purpose))
		}
	}
	return s
}

// KeysPage returns docs/keys.md for the tree.
func KeysPage(tree fs.FS) (string, error) {
	var page struct {
		Keys               []Key
		Scripts, Fragments []Script
	}
	for _, file := range keyFiles {
		keys, err := keysOf(tree, file)
		if err != nil {
			return "", err
		}
		page.Keys = append(page.Keys, keys...)
	}
	slices.SortFunc(page.Keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	names, err := fs.Glob(tree, "internal/lua/*.lua")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return "", err
		}
		script := Header(strings.TrimSuffix(path.Base(name), ".lua"), string(source))
		if strings.HasPrefix(script.Name, "_") {
			page.Fragments = append(page.Fragments, script)
		} else {
			page.Scripts = append(page.Scripts, script)
		}
	}
	var b strings.Builder
	err = keysPage.Execute(&b, page)
	return b.String(), err
}

// keysOf returns the keys that a Go file declares.
func keysOf(tree fs.FS, name string) (keys []Key, err error) {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			if !strings.HasPrefix(value.Names[0].Name, "key") {
				continue
			}
			key, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				return nil, err
			}
			kind, text, ok := strings.Cut(strings.TrimSpace(value.Comment.Text()), ": ")
			if !ok {
				return nil, fmt.Errorf("%s: %s has no comment of its type and meaning", name, value.Names[0].Name)
			}
			keys = append(keys, Key{key, kind, text})
		}
	}
	return keys, nil
}

// sentence returns a text that begins with a capital letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

var escaper = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`)

func cell(text string) string { return strings.ReplaceAll(escaper.Replace(text), "|", `\|`) }
