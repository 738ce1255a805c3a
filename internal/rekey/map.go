package rekey

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/luatx/luatx"
)

// placeholderID is the placeholder that names the aggregate.
const placeholderID = "id"

// A Map derives new keys from old ones. Different old keys get different new ones.
type Map struct {
	old   *regexp.Regexp
	names []string // the placeholders, in order
	parts []string // the parts of the new key: texts, or placeholders in braces
}

var placeholder = regexp.MustCompile(`\{\{|\}\}|\{([a-z][a-z0-9_]*)\}|[{}]`)

// ParseMap reads a template of the old names, such as "account:{id}:{part}". {id} is the aggregate. Other placeholders
// match the texts by which its keys differ. A placeholder matches one or more characters, none of which is a brace, a
// colon or the character that follows the placeholder in the template. {{ and }} match braces.
//
// Parts are the parts of the new name after the aggregate. Each is a placeholder or a text. By default, they are all
// placeholders except {id}, in their order. Parts must contain every placeholder except {id}.
func ParseMap(template string, parts ...string) (Map, error) {
	m := Map{parts: parts}
	var pattern strings.Builder
	end := 0
	for i, at := range placeholder.FindAllStringSubmatchIndex(template, -1) {
		pattern.WriteString(regexp.QuoteMeta(template[end:at[0]]))
		end = max(end, at[1])
		switch text := template[at[0]:at[1]]; {
		case text == "{{" || text == "}}":
			pattern.WriteString(regexp.QuoteMeta(text[:1]))
		case at[2] < 0:
			return Map{}, fmt.Errorf("map %q: the brace at %d is not part of a placeholder; write {name}, or {{ and }} for braces", template, at[0])
		default:
			if i > 0 && pattern.Len() > 0 && strings.HasSuffix(pattern.String(), "+)") {
				return Map{}, fmt.Errorf("map %q: two placeholders are adjacent; put text between them", template)
			}
			name := template[at[2]:at[3]]
			if slices.Contains(m.names, name) {
				return Map{}, fmt.Errorf("map %q: {%s} occurs twice; use each placeholder once", template, name)
			}
			m.names = append(m.names, name)
			not := `:{}`
			if next, size := utf8.DecodeRuneInString(template[at[1]:]); size > 0 {
				not += regexp.QuoteMeta(string(next))
			}
			pattern.WriteString(`([^` + strings.ReplaceAll(not, "-", `\-`) + `]+)`)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(template[end:]))
	if !slices.Contains(m.names, placeholderID) {
		return Map{}, fmt.Errorf("map %q: {id} is missing; use it for the text that names the aggregate", template)
	}
	var err error
	if m.old, err = regexp.Compile(`^(?s:` + pattern.String() + `)$`); err != nil {
		return Map{}, fmt.Errorf("map %q: %w", template, err)
	}
	return m, m.settleParts()
}

// settleParts sets the default parts. It rejects parts by which two old keys could get the same name.
func (m *Map) settleParts() error {
	if len(m.parts) == 0 {
		for _, name := range m.names {
			if name != placeholderID {
				m.parts = append(m.parts, "{"+name+"}")
			}
		}
	}
	for _, part := range m.parts {
		name, isPlaceholder := inBraces(part)
		switch {
		case part == "":
			return errors.New("parts: one is empty; leave it out")
		case isPlaceholder && !slices.Contains(m.names, name):
			return fmt.Errorf("parts: %s is not in the map", part)
		}
	}
	for _, name := range m.names {
		if name != placeholderID && !slices.Contains(m.parts, "{"+name+"}") {
			return fmt.Errorf("parts: {%s} is missing; add it, or keys that differ only in it get the same name", name)
		}
	}
	return nil
}

func inBraces(part string) (string, bool) {
	name, ok := strings.CutPrefix(part, "{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}

// errUnfit is the error for a key that does not match the template.
var errUnfit = errors.New("does not match the map")

// rename returns the new name of an old key.
func (m Map) rename(keyspace luatx.Keyspace, key string) (string, error) {
	found := m.old.FindStringSubmatch(key)
	if found == nil {
		return "", errUnfit
	}
	values := make(map[string]string, len(m.names))
	for i, name := range m.names {
		values[name] = found[i+1]
	}
	parts := make([]string, len(m.parts))
	for i, part := range m.parts {
		parts[i] = part
		if name, ok := inBraces(part); ok {
			parts[i] = values[name]
		}
	}
	return keyspace.Key(values[placeholderID], parts...)
}

// isNamed reports whether a key already belongs to the keyspace: the keyspace builds the same key from its parts.
func isNamed(keyspace luatx.Keyspace, key string) bool {
	lead, _, _ := strings.Cut(keyspace.TagKey("x"), "{x}")
	rest, ok := strings.CutPrefix(key, lead+"{")
	if !ok {
		return false
	}
	tag, rest, ok := strings.Cut(rest, "}")
	if !ok || rest != "" && rest[0] != ':' {
		return false
	}
	words := strings.Split(rest, ":")[1:]
	if len(keyspace.Tags()) == 0 { // own tags: the tag is the id
		words = append([]string{tag}, words...)
	}
	for i, word := range words {
		plain, err := url.PathUnescape(word)
		if err != nil {
			return false
		}
		words[i] = plain
	}
	if len(words) == 0 {
		return false
	}
	again, err := keyspace.Key(words[0], words[1:]...)
	return err == nil && again == key
}
