package message

import "bytes"

// maxDepth is the maximum nesting depth of objects and lists, as in encoding/json.
const maxDepth = 10_000

// isValid reports whether text is a JSON value. json.Valid gives the same result, but takes several times as long.
func isValid(text []byte) bool {
	w := walker{text: text}
	ok := w.pass(0)
	w.next()
	return ok && w.at == len(text)
}

// walker parses a text that may be JSON and detects invalid syntax.
type walker struct {
	text []byte
	at   int
}

// next skips white space and returns the next byte without consuming it, or 0 at the end.
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

// accept skips white space and consumes c if it is the next byte.
func (w *walker) accept(c byte) bool {
	if w.next() != c {
		return false
	}
	w.at++
	return true
}

// skip consumes c if it is at the current position.
func (w *walker) skip(c byte) bool {
	if w.at == len(w.text) || w.text[w.at] != c {
		return false
	}
	w.at++
	return true
}

// pass consumes a value at a nesting depth. It returns false if there is none.
func (w *walker) pass(depth int) bool {
	switch w.next() {
	case '"':
		return w.quoted()
	case '{':
		return depth < maxDepth && w.object(depth+1)
	case '[':
		return depth < maxDepth && w.list(depth+1)
	case 't':
		return w.word("true")
	case 'f':
		return w.word("false")
	case 'n':
		return w.word("null")
	}
	return w.number()
}

func (w *walker) object(depth int) bool {
	w.at++
	if w.accept('}') {
		return true
	}
	for w.next() == '"' && w.quoted() && w.accept(':') && w.pass(depth) {
		if w.accept('}') {
			return true
		}
		if !w.accept(',') {
			return false
		}
	}
	return false
}

func (w *walker) list(depth int) bool {
	w.at++
	if w.accept(']') {
		return true
	}
	for w.pass(depth) {
		if w.accept(']') {
			return true
		}
		if !w.accept(',') {
			return false
		}
	}
	return false
}

func (w *walker) quoted() bool {
	for w.at++; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; {
		case c == '"':
			w.at++
			return true
		case c == '\\':
			if w.at++; !w.escaped() {
				return false
			}
		case c < ' ':
			return false
		}
	}
	return false
}

// escaped consumes what follows a backslash, except for its last byte.
func (w *walker) escaped() bool {
	if w.at == len(w.text) {
		return false
	}
	switch w.text[w.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if w.at++; w.at == len(w.text) || !isHex(w.text[w.at]) {
				return false
			}
		}
		return true
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (w *walker) number() bool {
	w.skip('-')
	if !w.skip('0') && !w.digits() {
		return false
	}
	if w.skip('.') && !w.digits() {
		return false
	}
	if w.skip('e') || w.skip('E') {
		_ = w.skip('+') || w.skip('-')
		return w.digits()
	}
	return true
}

// digits consumes digits. It returns false if there are none.
func (w *walker) digits() bool {
	start := w.at
	for w.at < len(w.text) && '0' <= w.text[w.at] && w.text[w.at] <= '9' {
		w.at++
	}
	return w.at > start
}

func (w *walker) word(word string) bool {
	if !bytes.HasPrefix(w.text[w.at:], []byte(word)) {
		return false
	}
	w.at += len(word)
	return true
}
