package message

import (
	"encoding/json"
	"reflect"
	"strings"
	"unicode"
)

// Naming returns the event type for a Go type. If it returns "" for a handler's input, the handler takes every type.
type Naming func(reflect.Type) string

// DottedNaming is the default Naming. It returns "order.placed" for OrderPlaced. It names a pointer like its element, omits type
// parameters, and treats an acronym as one word: HTTPCallFailed becomes "http.call.failed". It returns "" for types that say
// nothing about the event (any, []byte, json.RawMessage, string and the like).
func DottedNaming(t reflect.Type) string { return strings.Join(typeWords(t), ".") }

// KebabNaming returns "order-placed" for OrderPlaced. It follows the rules of DottedNaming.
func KebabNaming(t reflect.Type) string { return strings.Join(typeWords(t), "-") }

// Named returns a Naming with the same name for every type, for a handler of one event type.
func Named(name string) Naming {
	return func(reflect.Type) string { return name }
}

// Prefixed returns a Naming that adds a prefix to the names of another, as in Prefixed("shop.", DottedNaming).
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

// words splits an identifier at underscores and before each capital that begins a word.
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
