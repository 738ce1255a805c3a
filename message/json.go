package message

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// The members of a structured CloudEvent that are not attributes.
const (
	memberData   = "data"
	memberBase64 = "data_base64"
)

// textAttributes must be strings where they are present.
var textAttributes = []string{
	AttrID, AttrSource, AttrSpecVersion, AttrType, AttrSubject, AttrDataContentType, AttrDataSchema,
	AttrDestination, AttrCorrelationID, AttrPartitionKey, AttrTraceParent, AttrTraceState,
}

// timeAttributes must be times where they are present.
var timeAttributes = []string{AttrTime, AttrExpiryTime}

// MarshalJSON encodes the message as a structured CloudEvent in the JSON format. The same message always gives the same
// bytes. Data that is a []byte is written as it is where it is valid JSON and the content type is JSON or absent, only
// white space around it is lost, and else as data_base64; other data is encoded as JSON. No data gives no member.
// A missing specversion becomes "1.0"; attributes that are nil are left out. Errors wrap ErrEncode.
//
// json.Marshal compacts and escapes what this method returns; call the method itself to keep the data's bytes.
func (m *TypedMessage[T]) MarshalJSON() ([]byte, error) {
	w := newJSONWriter()
	w.buf.WriteByte('{')
	if err := w.attributes(m.Attributes); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEncode, err)
	}
	if err := w.data(m.Data, m.DataContentType()); err != nil {
		return nil, fmt.Errorf("%w: data: %w", ErrEncode, err)
	}
	w.buf.WriteByte('}')
	return w.buf.Bytes(), nil
}

type jsonWriter struct {
	buf     *bytes.Buffer
	enc     *json.Encoder
	members int
}

func newJSONWriter() *jsonWriter {
	buf := new(bytes.Buffer)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &jsonWriter{buf: buf, enc: enc}
}

// value writes any value, without the line feed that an Encoder adds.
func (w *jsonWriter) value(v any) error {
	if err := w.enc.Encode(v); err != nil {
		return err
	}
	w.buf.Truncate(w.buf.Len() - 1)
	return nil
}

func (w *jsonWriter) name(name string) error {
	if w.members > 0 {
		w.buf.WriteByte(',')
	}
	w.members++
	if err := w.value(name); err != nil {
		return err
	}
	w.buf.WriteByte(':')
	return nil
}

func (w *jsonWriter) member(name string, v any) error {
	if err := w.name(name); err != nil {
		return err
	}
	return w.value(v)
}

// attributes writes the version first and the others by name.
func (w *jsonWriter) attributes(attrs Attributes) error {
	version := any(SpecVersion)
	if v := attrs[AttrSpecVersion]; v != nil {
		version = v
	}
	if err := w.attribute(AttrSpecVersion, version); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if name == AttrSpecVersion || attrs[name] == nil {
			continue
		}
		if err := w.attribute(name, attrs[name]); err != nil {
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

// checkAttribute holds the attributes with accessors to their types.
func checkAttribute(name string, v any) error {
	if slices.Contains(textAttributes, name) {
		if _, ok := v.(string); !ok {
			return fmt.Errorf("attribute %q is a %T, want a string", name, v)
		}
	}
	if !slices.Contains(timeAttributes, name) {
		return nil
	}
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
	if s, ok := data.(string); ok && !utf8.ValidString(s) && !isJSON(contentType) {
		return w.encoded([]byte(s), contentType)
	}
	return w.member(memberData, data)
}

func (w *jsonWriter) encoded(raw []byte, contentType string) error {
	if raw == nil {
		return nil
	}
	// Invalid UTF-8 inside a JSON string would make the whole event unreadable for others.
	if !isJSON(contentType) || !json.Valid(raw) || !utf8.Valid(raw) {
		return w.member(memberBase64, base64.StdEncoding.EncodeToString(raw))
	}
	if err := w.name(memberData); err != nil {
		return err
	}
	w.buf.Write(bytes.Trim(raw, " \t\r\n"))
	return nil
}
