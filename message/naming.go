package message

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
)

// Naming gives the event type of a Go type. An empty name on a handler's input means every type.
type Naming func(reflect.Type) string

// DottedNaming names OrderPlaced "order.placed"; it is the default. Pointers count as what they point to, type
// parameters are left out, and acronyms are one word: HTTPCallFailed is "http.call.failed". Types that say nothing
// about the event (any, []byte, json.RawMessage, string and the like) have no name.
func DottedNaming(t reflect.Type) string { return strings.Join(typeWords(t), ".") }

// KebabNaming names OrderPlaced "order-placed", by the rules of DottedNaming.
func KebabNaming(t reflect.Type) string { return strings.Join(typeWords(t), "-") }

// Named gives every type the same name: for a handler of one event type with a given name.
func Named(name string) Naming {
	return func(reflect.Type) string { return name }
}

// Prefixed puts a prefix before the names that another naming gives: Prefixed("shop.", DottedNaming).
func Prefixed(prefix string, naming Naming) Naming {
	return func(t reflect.Type) string {
		if name := naming(t); name != "" {
			return prefix + name
		}
		return ""
	}
}

func pick(naming []Naming) Naming {
	for _, n := range naming {
		if n != nil {
			return n
		}
	}
	return DottedNaming
}

func typeWords(t reflect.Type) []string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.PkgPath() == "" || t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return words(name)
}

// words splits an identifier before each capital that begins a word, and at underscores.
func words(name string) []string {
	var out []string
	runes := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			out = append(out, strings.ToLower(string(runes[start:end])))
		}
		start = end
	}
	for i, r := range runes {
		switch {
		case r == '_':
			cut(i)
			start = i + 1
		case i > start && unicode.IsUpper(r):
			acronymEnds := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(runes[i-1]) || acronymEnds {
				cut(i)
			}
		}
	}
	cut(len(runes))
	return out
}
