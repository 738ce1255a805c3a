package message

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// The members of a structured CloudEvent that are not attributes.
const (
	memberData   = "data"
	memberBase64 = "data_base64"
)

// MarshalJSON encodes the message as a structured CloudEvent in JSON format. The same message always results in the same bytes.
// Data that is a []byte is written unchanged, without surrounding white space, if it is valid JSON and the content type is JSON
// or missing; otherwise it becomes data_base64. Other data is encoded as JSON. Without data, the member is omitted. A missing
// specversion becomes "1.0", and nil attributes are omitted. Errors wrap ErrEncode.
//
// json.Marshal compacts and escapes the result of this method. Call the method itself to keep the bytes of the data.
func (m *TypedMessage[T]) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil, "") }

// AppendJSON appends what MarshalJSON returns to b, with another id unless id is empty. It does not change the message.
func (m *TypedMessage[T]) AppendJSON(b []byte, id string) ([]byte, error) {
	w := jsonWriter{buf: slices.Grow(b, sizeOf(m.Attributes, m.Data))}
	w.byte('{')
	if err := w.attributes(m.Attributes, id); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEncode, err)
	}
	if err := w.data(m.Data, m.DataContentType()); err != nil {
		return nil, fmt.Errorf("%w: data: %w", ErrEncode, err)
	}
	w.byte('}')
	return w.buf, nil
}

type jsonWriter struct {
	buf     []byte
	members int
}

// sizeOf returns a size that is enough for a message, unless characters must be escaped or the data must be encoded.
func sizeOf(attrs Attributes, data any) int {
	raw, _ := encodedData(data)
	size := len(raw)
	if !isJSON(attrs.DataContentType()) {
		size = base64.StdEncoding.EncodedLen(size)
	}
	if text, ok := data.(string); ok {
		size += len(text)
	}
	size += len(`{"specversion":"1.0","id":"12345678-9abc-8def-0123-456789abcdef","data_base64":""}`)
	for name, v := range attrs {
		text, ok := v.(string)
		if !ok {
			text = time.RFC3339Nano // about as long as most times
		}
		size += len(`,"":""`) + len(name) + len(text)
	}
	return size
}

func (w *jsonWriter) byte(b byte) { w.buf = append(w.buf, b) }

// value writes any value.
func (w *jsonWriter) value(v any) error {
	if s, ok := v.(string); ok {
		return w.text(s)
	}
	return w.encode(v)
}

func (w *jsonWriter) text(s string) error {
	if !isPlain(s) {
		return w.encode(s)
	}
	w.byte('"')
	w.buf = append(w.buf, s...)
	w.byte('"')
	return nil
}

// encode writes a value as encoding/json does, but for the characters that only HTML needs escaped.
func (w *jsonWriter) encode(v any) error {
	out := appender(w.buf) // w itself would escape to the heap
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.buf = out[:len(out)-1] // the line feed that an Encoder adds
	return nil
}

type appender []byte

// Write implements io.Writer.
func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

// isPlain reports whether JSON represents a text without escapes. It looks at 32 bytes at once, because data may be large.
func isPlain(s string) bool {
	for ; len(s) >= 32; s = s[32:] {
		if (special(s)|special(s[8:])|special(s[16:])|special(s[24:]))&(1<<7*eachByte) != 0 {
			return false
		}
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= utf8.RuneSelf || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}

const eachByte = 0x0101010101010101

// special returns a number in which the highest bit of a byte is set if that one of the first eight bytes of a text is not ASCII,
// or below ' ', or '"', or '\\'. It may also set the bits of bytes that follow such a byte.
func special(s string) uint64 {
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	return x | (x - ' '*eachByte) | ((x ^ '"'*eachByte) - eachByte) | ((x ^ '\\'*eachByte) - eachByte)
}

func (w *jsonWriter) name(name string) error {
	if w.members > 0 {
		w.byte(',')
	}
	w.members++
	if err := w.text(name); err != nil {
		return err
	}
	w.byte(':')
	return nil
}

func (w *jsonWriter) member(name string, v any) error {
	if err := w.name(name); err != nil {
		return err
	}
	return w.value(v)
}

// attributes writes the specversion first and then the other attributes by name. A non-empty id replaces the message's own.
func (w *jsonWriter) attributes(attrs Attributes, id string) error {
	version := any(SpecVersion)
	if v := attrs[AttrSpecVersion]; v != nil {
		version = v
	}
	if err := w.attribute(AttrSpecVersion, version); err != nil {
		return err
	}
	var few [16]string
	names := few[:0]
	for name, v := range attrs {
		if name != AttrSpecVersion && v != nil && (id == "" || name != AttrID) {
			names = append(names, name)
		}
	}
	if id != "" {
		names = append(names, AttrID)
	}
	slices.Sort(names)
	for _, name := range names {
		var err error
		if id != "" && name == AttrID {
			err = cmp.Or(w.name(name), w.text(id))
		} else {
			err = w.attribute(name, attrs[name])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *jsonWriter) attribute(name string, v any) error {
	if name == memberData || name == memberBase64 {
		return fmt.Errorf("attribute %q: the name is reserved for the data", name)
	}
	if err := checkAttribute(name, v); err != nil {
		return err
	}
	if err := w.member(name, v); err != nil {
		return fmt.Errorf("attribute %q: %w", name, err)
	}
	return nil
}

// checkAttribute returns an error if an attribute with an accessor has the wrong type.
func checkAttribute(name string, v any) error {
	switch name {
	case AttrID, AttrSource, AttrSpecVersion, AttrType, AttrSubject, AttrDataContentType, AttrDataSchema,
		AttrDestination, AttrCorrelationID, AttrPartitionKey, AttrTraceParent, AttrTraceState:
		if _, ok := v.(string); !ok {
			return fmt.Errorf("attribute %q is a %T, want a string", name, v)
		}
	case AttrTime, AttrExpiryTime:
		return checkTime(name, v)
	}
	return nil
}

func checkTime(name string, v any) error {
	switch t := v.(type) {
	case time.Time:
		return nil
	case string:
		_, err := parseTime(name, t)
		return err
	default:
		return fmt.Errorf("attribute %q is a %T, want a time", name, v)
	}
}

func parseTime(name, text string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return t, fmt.Errorf("attribute %q is no RFC 3339 time: %w", name, err)
	}
	return t, nil
}

func (w *jsonWriter) data(data any, contentType string) error {
	if data == nil {
		return nil
	}
	if raw, ok := encodedData(data); ok {
		return w.encoded(raw, contentType)
	}
	if s, ok := data.(string); ok && !isJSON(contentType) && !utf8.ValidString(s) {
		return w.encoded([]byte(s), contentType)
	}
	return w.member(memberData, data)
}

func (w *jsonWriter) encoded(raw []byte, contentType string) error {
	if raw == nil {
		return nil
	}
	// Invalid UTF-8 inside a JSON string would make the whole event unreadable for other programs.
	if !isJSON(contentType) || !isValid(raw) || !utf8.Valid(raw) {
		if err := w.name(memberBase64); err != nil {
			return err
		}
		w.byte('"')
		w.buf = base64.StdEncoding.AppendEncode(w.buf, raw)
		w.byte('"')
		return nil
	}
	if err := w.name(memberData); err != nil {
		return err
	}
	w.buf = append(w.buf, bytes.Trim(raw, " \t\r\n")...)
	return nil
}
