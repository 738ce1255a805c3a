package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// fieldText returns the value of a field, or "" if there is none.
func fieldText(values map[string]any, name string) string {
	switch v := values[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// fieldBytes returns the value of a field, or nil if there is none.
func fieldBytes(values map[string]any, name string) []byte {
	if _, ok := values[name]; !ok {
		return nil
	}
	return []byte(fieldText(values, name))
}

// fieldsJSON encodes the fields as a JSON object. It returns an error for invalid UTF-8, which the encoder would silently
// replace.
func fieldsJSON(values map[string]any) ([]byte, error) {
	fields := make(map[string]string, len(values))
	for name := range values {
		text := fieldText(values, name)
		if !utf8.ValidString(name) || !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: field %q is not UTF-8 and cannot become JSON; set SubscriberConfig.Unmarshal", message.ErrDecode, name)
		}
		fields[name] = text
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, fmt.Errorf("%w: %w", message.ErrDecode, err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
