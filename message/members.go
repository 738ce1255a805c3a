package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// member is a member of a JSON object with its encoded value.
type member struct {
	name  string
	value json.RawMessage
}

type members []member

func (ms members) find(name string) (json.RawMessage, bool) {
	for _, m := range ms {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// readMembers appends the members of an object to out. It returns an error for a duplicate member, because two readers could
// interpret the object differently. The values are slices of text.
func readMembers(text []byte, out members) (members, error) {
	w := walker{text: text}
	switch {
	case w.accept('{'):
	case json.Valid(text):
		return nil, errors.New("a CloudEvent is a JSON object")
	default:
		return nil, invalidJSON(text)
	}
	var known names
	for closed := w.accept('}'); !closed; {
		raw, ok := w.value()
		if !ok || raw[0] != '"' || !w.accept(':') {
			return nil, invalidJSON(text)
		}
		name, err := nameOf(raw)
		if err != nil {
			return nil, err
		}
		if known.has(out, name) {
			return nil, fmt.Errorf("member %q comes twice", name)
		}
		value, ok := w.value()
		if closed = w.accept('}'); !ok || !closed && !w.accept(',') {
			return nil, invalidJSON(text)
		}
		out = append(out, member{name, value})
	}
	if w.next(); w.at < len(text) {
		return nil, invalidJSON(text)
	}
	return out, nil
}

// invalidJSON returns the error for a text that is not a JSON value.
func invalidJSON(text []byte) error {
	var first json.RawMessage
	switch err := json.NewDecoder(bytes.NewReader(text)).Decode(&first); {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF // a bare EOF looks like the end of a stream
	case err != nil:
		return err
	default:
		return errors.New("something follows the JSON object")
	}
}

// readText decodes a JSON string.
func readText(raw json.RawMessage) (string, error) {
	if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return string(plain), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// isText reports whether raw is the JSON string of a text without escapes.
func isText(raw json.RawMessage, text string) bool {
	return raw[0] == '"' && string(raw[1:len(raw)-1]) == text && strings.IndexByte(text, '\\') < 0 && utf8.ValidString(text)
}

// names is the set of the names of members. It is used only if there are too many members for a linear search.
type names map[string]bool

func (n *names) has(ms members, name string) bool {
	const few = 16
	if len(ms) < few {
		_, found := ms.find(name)
		return found
	}
	if *n == nil {
		*n = make(names, 2*few)
		for _, m := range ms {
			(*n)[m.name] = true
		}
	}
	found := (*n)[name]
	(*n)[name] = true
	return found
}

// nameOf decodes the name of a member. It allocates no string for the common names.
func nameOf(raw json.RawMessage) (string, error) {
	switch string(raw[1 : len(raw)-1]) {
	case AttrID:
		return AttrID, nil
	case AttrSource:
		return AttrSource, nil
	case AttrSpecVersion:
		return AttrSpecVersion, nil
	case AttrType:
		return AttrType, nil
	case AttrSubject:
		return AttrSubject, nil
	case AttrTime:
		return AttrTime, nil
	case AttrDataContentType:
		return AttrDataContentType, nil
	case memberData:
		return memberData, nil
	case memberBase64:
		return memberBase64, nil
	}
	return readText(raw)
}

// value consumes a value and returns it. It returns false if there is none.
func (w *walker) value() (raw json.RawMessage, ok bool) {
	w.next()
	start := w.at
	ok = w.pass(0)
	return w.text[start:w.at:w.at], ok
}
