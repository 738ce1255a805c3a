package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// keyFiles hold the constants of a shard's keys, each with a comment that begins with its type.
var keyFiles = []string{"internal/shard/keys.go", "internal/shard/sweep.go", "internal/shard/pause.go"}

const keysHead = `<!-- Written by LUATX_UPDATE=1 go test ./internal/docs from the constants of internal/shard and the headers in internal/lua/. -->
# Keys and scripts

What luatx keeps in Redis, and every script that touches it. To look is safe; to change by hand is not: [operations.md](operations.md)
and [repair.md](repair.md) say what to do instead.

## The keys of a shard

A shard is all that luatx keeps in one slot: ` + "`namespace:{text}:name`" + `, where the text is a short one that hashes to the slot, so
that ` + "`shop:{pt6}:pending`" + ` shares the slot of all keys of the tag ` + "`pt6`" + `. An empty key does not exist. None has an expiry: what is
old is removed by scripts. Commands of a transaction cannot name them.

| name | type | what it holds |
|---|---|---|
`

const keysOutside = `
## Keys beside the shards

| key | by | what it is |
|---|---|---|
| what ` + "`Keyspace.Key`" + ` returns: ` + "`prefix:{tag}:…`" + ` | you | business data |
| what ` + "`stream.DeadLetterKey`" + ` returns, or ` + "`DeadLetter`" + ` names | ` + "`stream.Subscriber`" + ` | dead letters, where there are any |
| ` + "`{tag}:<stream>`" + `, and ` + "`…:<group>:lease`, `…:members`, `…:void`" + ` | partitioned streams | [partitions.md](partitions.md#keys) |
| ` + "`…:idempotency:<digest>`" + ` | ` + "`idempotency`" + ` | a kept answer, beside the aggregate's keys, with an expiry |
| ` + "`inbox:<source>:<id>`" + `, or what ` + "`MarkKey`" + ` names | ` + "`pipeline.SetNX`" + ` | a mark of the pipeline mode, with an expiry |
| ` + "`trigger.Config.LastIDKey`" + ` | ` + "`trigger`" + ` | how far a trigger without a group has come |

## The scripts

Each is one atomic step. Fragments (below) are put before those that use them, and constants of the configuration (identity,
retention, capacities, procedures) stand in the text, so that a script's SHA-1 differs between configurations: ` + "`luatx scripts`" + ` lists
them. All run on Redis 6.0 and later where nothing else is said. *Bound* says how much a call does at most. ` + "`void`" + ` is declared by
every script that writes to a shard: while its slot migrates, a key that does not exist makes the cluster answer TRYAGAIN before
anything has run.

`

// A Script is what the header of a file of internal/lua/ says.
type Script struct {
	Name string
	Said map[string]string // by label: Purpose, KEYS, ARGV, Reply, Bound, Redis
}

var labels = []string{"Purpose", "KEYS", "ARGV", "Reply", "Bound", "Redis"}

// Header reads the header of a script.
func Header(name, source string) Script {
	s := Script{Name: name, Said: map[string]string{}}
	label := ""
	for line := range strings.Lines(source) {
		text, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		if strings.HasPrefix(text, "#") { // how the file is composed
			continue
		}
		text = strings.TrimSpace(text)
		for _, l := range labels {
			if rest, ok := strings.CutPrefix(text, l+":"); ok {
				label, text = l, strings.TrimSpace(rest)
			}
		}
		switch {
		case text == "" && strings.HasPrefix(name, "_"):
			label = "" // what follows is for readers of the file
		case label != "":
			s.Said[label] = strings.TrimSpace(s.Said[label] + " " + text)
		}
	}
	return s
}

// KeysPage is docs/keys.md, made from the tree.
func KeysPage(tree fs.FS) (string, error) {
	var b strings.Builder
	b.WriteString(keysHead)
	rows := map[string]string{}
	for _, file := range keyFiles {
		if err := keyRows(tree, file, rows); err != nil {
			return "", err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[key])
	}
	b.WriteString(keysOutside)
	names, err := fs.Glob(tree, "internal/lua/*.lua")
	if err != nil {
		return "", err
	}
	var fragments strings.Builder
	for _, name := range names {
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return "", err
		}
		base := strings.TrimSuffix(strings.TrimPrefix(name, "internal/lua/"), ".lua")
		s := Header(base, string(source))
		link := fmt.Sprintf("[%s.lua](../%s)", base, name)
		if strings.HasPrefix(base, "_") {
			fmt.Fprintf(&fragments, "| %s | %s |\n", link, cell(sentence(s.Said["Purpose"])))
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n%s\n\n| %s | |\n|---|---|\n", base, escape(sentence(s.Said["Purpose"])), link)
		for _, label := range labels[1:] {
			if text := s.Said[label]; text != "" && (label != "Redis" || text != "6.0") {
				fmt.Fprintf(&b, "| %s | %s |\n", label, cell(text))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("## The fragments\n\n| | |\n|---|---|\n" + fragments.String())
	return b.String(), nil
}

// keyRows adds the rows of the keys that a file of Go declares, by key.
func keyRows(tree fs.FS, name string, rows map[string]string) error {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
	if err != nil {
		return err
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
				return err
			}
			kind, text, ok := strings.Cut(strings.TrimSpace(value.Comment.Text()), ": ")
			if !ok {
				return fmt.Errorf("%s: %s has no comment of its type and meaning", name, value.Names[0].Name)
			}
			rows[key] = fmt.Sprintf("| `%s` | %s | %s |\n", key, kind, cell(text))
		}
	}
	return nil
}

// sentence begins with a capital letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

var escaper = strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`)

func escape(text string) string { return escaper.Replace(text) }

func cell(text string) string { return strings.ReplaceAll(escape(text), "|", `\|`) }
