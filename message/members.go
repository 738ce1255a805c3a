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
	if !json.Valid(text) {
		return nil, invalidJSON(text)
	}
	w := walker{text: text}
	if w.next() != '{' {
		return nil, errors.New("a CloudEvent is a JSON object")
	}
	out := make(members, 0, 8)
	var known names
	for w.at++; w.next() != '}'; {
		if text[w.at] == ',' {
			w.at++
			w.next()
		}
		name, err := readText(w.value())
		if err != nil {
			return nil, err
		}
		if known.has(out, name) {
			return nil, fmt.Errorf("member %q comes twice", name)
		}
		w.next()
		w.at++ // the colon
		w.next()
		out = append(out, member{name, w.value()})
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

// walker walks through a text that is valid JSON.
type walker struct {
	text []byte
	at   int
}

// next is the next byte that is no space.
func (w *walker) next() byte {
	for {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
}

// value passes a value and returns it.
func (w *walker) value() json.RawMessage {
	start, depth := w.at, 0
	for {
		switch c := w.text[w.at]; c {
		case '"':
			w.quoted()
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case ',', ':', ' ', '\t', '\r', '\n':
			w.at++
		default:
			w.scalar()
		}
		if depth == 0 {
			return w.text[start:w.at:w.at]
		}
	}
}

// quoted passes a string.
func (w *walker) quoted() {
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// scalar passes a number, a boolean or null.
func (w *walker) scalar() {
	for {
		switch w.text[w.at] {
		case ',', ':', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
		w.at++
	}
}
