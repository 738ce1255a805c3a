package message

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// UnmarshalJSON decodes a structured CloudEvent and keeps the acking and the in-process values. Unknown members become
// attributes: strings, booleans, int64 for integers that fit, json.Number for other numbers, and json.RawMessage for objects and
// lists. Nulls are omitted. time and expirytime become time.Time.
//
// A []byte gets the bytes of the data unchanged, the unquoted text if the content type is not JSON, or the decoded data_base64.
// In the same three cases, data of type any becomes a json.RawMessage, a string or a []byte. Other types are decoded from JSON.
// Errors wrap ErrDecode and leave the message unchanged.
func (m *TypedMessage[T]) UnmarshalJSON(text []byte) error {
	var few [8]member
	members, err := readMembers(text, few[:0])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	attrs, err := members.attributes(m.Attributes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	var data T
	if err := members.data(&data, attrs.DataContentType()); err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	m.Data, m.Attributes = data, attrs
	return nil
}

// attributes decodes the attributes. Texts that the message had before need no memory, which helps those who decode one message
// after the other.
func (ms members) attributes(before Attributes) (Attributes, error) {
	attrs := make(Attributes, len(ms))
	for _, m := range ms {
		if m.name == memberData || m.name == memberBase64 {
			continue
		}
		v, err := attributeValue(m.name, m.value, before[m.name])
		if err != nil {
			return nil, err
		}
		if v != nil {
			attrs[m.name] = v
		}
	}
	if v := attrs.SpecVersion(); v != "" && !strings.HasPrefix(v, "1.") {
		return nil, fmt.Errorf("specversion %q is not supported, want %q", v, SpecVersion)
	}
	return attrs, nil
}

func attributeValue(name string, raw json.RawMessage, before any) (any, error) {
	if text, ok := before.(string); ok && isText(raw, text) && name != AttrTime && name != AttrExpiryTime {
		return before, nil
	}
	v, err := plainValue(raw)
	if v == nil || err != nil {
		return nil, err
	}
	if err := checkAttribute(name, v); err != nil {
		return nil, err
	}
	if name == AttrTime || name == AttrExpiryTime {
		s, _ := v.(string) // checkAttribute has verified the type
		return parseTime(name, s)
	}
	return v, nil
}

func plainValue(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case 'n':
		return nil, nil
	case 't', 'f':
		return raw[0] == 't', nil
	case '{', '[':
		var compact bytes.Buffer
		err := json.Compact(&compact, raw)
		return json.RawMessage(compact.Bytes()), err
	case '"':
		return readText(raw)
	default:
		if i, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return i, nil
		}
		return json.Number(raw), nil
	}
}

// data decodes the data into the value that target points to.
func (ms members) data(target any, contentType string) error {
	raw, plain := ms.find(memberData)
	text, binary := ms.find(memberBase64)
	switch {
	case plain && binary:
		return errors.New("data and data_base64 are both there, want one")
	case plain:
		return setData(target, raw, contentType)
	case binary:
		var b []byte
		if err := setBase64(&b, text); err != nil {
			return fmt.Errorf("data_base64: %w", err)
		}
		return setBytes(target, b, contentType)
	default:
		return nil
	}
}

// setBase64 decodes base64 into dst, and leaves dst nil for null.
func setBase64(dst *[]byte, text json.RawMessage) error {
	if text[0] == 'n' {
		return nil
	}
	if text[0] != '"' {
		return errors.New("no string")
	}
	s, err := readText(text)
	if err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	*dst = b
	return err
}

// setData decodes the data member. If the content type is not JSON, a string stands for its own text.
func setData(target any, raw json.RawMessage, contentType string) error {
	isText := !isJSON(contentType) && raw[0] == '"'
	var text string
	if isText {
		var err error
		if text, err = readText(raw); err != nil {
			return fmt.Errorf("data: %w", err)
		}
	}
	switch t := target.(type) {
	case *[]byte:
		if isText {
			*t = []byte(text)
		} else {
			*t = bytes.Clone(raw)
		}
	case *any:
		if isText {
			*t = text
		} else {
			*t = json.RawMessage(bytes.Clone(raw))
		}
	default:
		if err := json.Unmarshal(raw, target); err != nil {
			return fmt.Errorf("data: %w", err)
		}
	}
	return nil
}

// setBytes stores decoded data_base64.
func setBytes(target any, b []byte, contentType string) error {
	switch t := target.(type) {
	case *[]byte:
		*t = b
		return nil
	case *json.RawMessage:
		*t = b
		return nil
	case *any:
		if b != nil {
			*t = b
		}
		return nil
	case *string:
		*t = string(b)
		return nil
	}
	if b == nil {
		return nil
	}
	if !isJSON(contentType) {
		return fmt.Errorf("data_base64 of content type %q into a %T: decode it as a RawMessage", contentType, target)
	}
	if err := json.Unmarshal(b, target); err != nil {
		return fmt.Errorf("data_base64: %w", err)
	}
	return nil
}
