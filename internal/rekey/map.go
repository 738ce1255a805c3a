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
	// split returns the aggregate of an old key and the parts of the new one. It returns errUnfit for other keys.
	split func(key string) (aggregate string, parts []string, err error)
}

// From returns a Map of the keys that a keyspace has built.
func From(keyspace luatx.Keyspace) Map {
	return Map{func(key string) (string, []string, error) {
		aggregate, parts, ok := parse(keyspace, key)
		if !ok {
			return "", nil, errUnfit
		}
		return aggregate, parts, nil
	}}
}

// template is the pattern of the old names.
type template struct {
	old    *regexp.Regexp
	tagged bool     // the old names contain braces
	names  []string // the placeholders, in order
	parts  []string // the parts of the new key: texts, or placeholders in braces
}

var placeholder = regexp.MustCompile(`\{\{|\}\}|\{([a-z][a-z0-9_]*)\}|[{}]`)

// ParseMap reads a template of old names that no keyspace has built, such as "account:{id}:{part}". {id} is the aggregate. Other placeholders
// match the texts by which its keys differ. A placeholder matches one or more characters, none of which is a brace, a
// colon or the character that follows the placeholder in the template. {{ and }} match braces.
//
// Parts are the parts of the new name after the aggregate. Each is a placeholder or a text. By default, they are all
// placeholders except {id}, in their order. Parts must contain every placeholder except {id}.
func ParseMap(text string, parts ...string) (Map, error) {
	t, err := parseTemplate(text, parts)
	if err != nil {
		return Map{}, err
	}
	return Map{t.split}, nil
}

func parseTemplate(text string, parts []string) (template, error) {
	t := template{parts: parts}
	var pattern strings.Builder
	end := 0
	for i, at := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		pattern.WriteString(regexp.QuoteMeta(text[end:at[0]]))
		end = max(end, at[1])
		switch found := text[at[0]:at[1]]; {
		case found == "{{" || found == "}}":
			t.tagged = true
			pattern.WriteString(regexp.QuoteMeta(found[:1]))
		case at[2] < 0:
			return template{}, fmt.Errorf("map %q: the brace at %d is not part of a placeholder; write {name}, or {{ and }} for braces", text, at[0])
		default:
			if i > 0 && pattern.Len() > 0 && strings.HasSuffix(pattern.String(), "+)") {
				return template{}, fmt.Errorf("map %q: two placeholders are adjacent; put text between them", text)
			}
			name := text[at[2]:at[3]]
			if slices.Contains(t.names, name) {
				return template{}, fmt.Errorf("map %q: {%s} occurs twice; use each placeholder once", text, name)
			}
			t.names = append(t.names, name)
			not := `:{}`
			if next, size := utf8.DecodeRuneInString(text[at[1]:]); size > 0 {
				not += regexp.QuoteMeta(string(next))
			}
			pattern.WriteString(`([^` + strings.ReplaceAll(not, "-", `\-`) + `]+)`)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(text[end:]))
	if !slices.Contains(t.names, placeholderID) {
		return template{}, fmt.Errorf("map %q: {id} is missing; use it for the text that names the aggregate", text)
	}
	var err error
	if t.old, err = regexp.Compile(`^(?s:` + pattern.String() + `)$`); err != nil {
		return template{}, fmt.Errorf("map %q: %w", text, err)
	}
	err = t.settleParts()
	return t, err
}

// settleParts sets the default parts. It rejects parts by which two old keys could get the same name.
func (t *template) settleParts() error {
	if len(t.parts) == 0 {
		for _, name := range t.names {
			if name != placeholderID {
				t.parts = append(t.parts, "{"+name+"}")
			}
		}
	}
	for _, part := range t.parts {
		name, isPlaceholder := inBraces(part)
		switch {
		case part == "":
			return errors.New("parts: one is empty; leave it out")
		case isPlaceholder && !slices.Contains(t.names, name):
			return fmt.Errorf("parts: %s is not in the map", part)
		}
	}
	for _, name := range t.names {
		if name != placeholderID && !slices.Contains(t.parts, "{"+name+"}") {
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

var (
	errUnfit  = errors.New("does not match the old names")
	errEscape = errors.New("contains an escape, which a map does not decode; name the old keyspace instead of a map")
	errShard  = errors.New("belongs to a shard of luatx, which keeps its keys; choose a pattern without it")
)

// split implements Map.split.
func (t template) split(key string) (aggregate string, parts []string, err error) {
	found := t.old.FindStringSubmatch(key)
	if found == nil {
		return "", nil, errUnfit
	}
	values := make(map[string]string, len(t.names))
	for i, name := range t.names {
		value := found[i+1]
		if plain, err := url.PathUnescape(value); t.tagged && err == nil && plain != value {
			return "", nil, errEscape
		}
		values[name] = value
	}
	parts = slices.Clone(t.parts)
	for i, part := range parts {
		if name, ok := inBraces(part); ok {
			parts[i] = values[name]
		}
	}
	return values[placeholderID], parts, nil
}

// rename returns the new name of a key. It returns the key itself if the key already has its new name.
func (m Map) rename(keyspace luatx.Keyspace, key string) (string, error) {
	named, own := isNamed(keyspace, key), hasOwnTags(keyspace)
	if named && !own {
		return key, nil
	}
	// With own tags, every text in braces may be a tag, so the old names decide first.
	aggregate, parts, err := m.split(key)
	switch {
	case named && errors.Is(err, errUnfit):
		return key, nil
	case err != nil:
		return "", err
	}
	name, err := keyspace.Key(aggregate, parts...)
	if err == nil && own && name != key {
		if _, _, err := m.split(name); err == nil {
			return "", fmt.Errorf("the new name %q is also an old name; choose another prefix", name)
		}
	}
	return name, err
}

// hasOwnTags reports whether the tag of a keyspace is the id of the aggregate.
func hasOwnTags(keyspace luatx.Keyspace) bool {
	key, err := keyspace.Key("x")
	return err == nil && strings.HasSuffix(key, "{x}")
}

// isNamed reports whether the keyspace builds the key from some aggregate and parts.
func isNamed(keyspace luatx.Keyspace, key string) bool {
	_, _, ok := parse(keyspace, key)
	return ok
}

// parse returns the aggregate and the parts from which the keyspace builds the key. It returns false if there are none.
func parse(keyspace luatx.Keyspace, key string) (aggregate string, parts []string, ok bool) {
	lead, _, _ := strings.Cut(keyspace.TagKey("x"), "{x}")
	rest, ok := strings.CutPrefix(key, lead+"{")
	if !ok {
		return "", nil, false
	}
	tag, rest, ok := strings.Cut(rest, "}")
	if !ok || rest != "" && rest[0] != ':' {
		return "", nil, false
	}
	words := strings.Split(rest, ":")[1:]
	if hasOwnTags(keyspace) {
		words = append([]string{tag}, words...)
	}
	for i, word := range words {
		plain, err := url.PathUnescape(word)
		if err != nil {
			return "", nil, false
		}
		words[i] = plain
	}
	if len(words) == 0 {
		return "", nil, false
	}
	again, err := keyspace.Key(words[0], words[1:]...)
	return words[0], words[1:], err == nil && again == key
}
