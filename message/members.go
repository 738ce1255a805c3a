package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// member is a member of a JSON object, its value as it stands in the text.
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

// readMembers refuses a member that comes twice: two readers could take it for two different messages. The values are
// parts of the text.
func readMembers(text []byte) (members, error) {
	w := walker{text: text}
	switch {
	case w.take('{'):
	case json.Valid(text):
		return nil, errors.New("a CloudEvent is a JSON object")
	default:
		return nil, invalidJSON(text)
	}
	out := make(members, 0, 8)
	var known names
	for closed := w.take('}'); !closed; {
		raw, ok := w.value()
		if !ok || raw[0] != '"' || !w.take(':') {
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
		if closed = w.take('}'); !ok || !closed && !w.take(',') {
			return nil, invalidJSON(text)
		}
		out = append(out, member{name, value})
	}
	if w.next(); w.at < len(text) {
		return nil, invalidJSON(text)
	}
	return out, nil
}

// invalidJSON says what is wrong with a text that is no JSON value.
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

// names knows the names of members: few are looked through.
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

// nameOf decodes the name of a member; those that most events have are not made anew.
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

// walker walks through a text that may be JSON, and sees where it is not.
type walker struct {
	text []byte
	at   int
}

// next is the next byte that is no space; 0 at the end.
func (w *walker) next() byte {
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take passes a byte, where it is the next.
func (w *walker) take(c byte) bool {
	if w.next() != c {
		return false
	}
	w.at++
	return true
}

// value passes a value and returns it; false where there is none.
func (w *walker) value() (raw json.RawMessage, ok bool) {
	sound := false
	first := w.next()
	start := w.at
	switch first {
	case '"':
		sound, ok = w.quoted()
	case '{', '[':
		ok = w.nested()
	default:
		ok = w.scalar()
	}
	raw = w.text[start:w.at:w.at]
	return raw, ok && (sound || json.Valid(raw))
}

// quoted passes a string. It is sound for sure where nothing in it is escaped.
func (w *walker) quoted() (sound, ok bool) {
	sound = true
	for w.at++; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; {
		case c == '"':
			w.at++
			return sound, true
		case c == '\\':
			w.at++
			sound = false
		case c < ' ':
			return false, false
		}
	}
	w.at = len(w.text)
	return false, false
}

// nested passes an object or a list.
func (w *walker) nested() bool {
	for depth := 0; w.at < len(w.text); {
		switch w.text[w.at] {
		case '"':
			if _, ok := w.quoted(); !ok {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		w.at++
		if depth == 0 {
			return true
		}
	}
	return false
}

// scalar passes a number, a boolean or null.
func (w *walker) scalar() bool {
	start := w.at
	for ; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case ',', ':', '}', ']', ' ', '\t', '\r', '\n':
			return w.at > start
		}
	}
	return w.at > start
}
