package cehttp

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// attributeText returns the canonical text of an attribute's value.
func attributeText(name string, value any) (string, error) {
	if isTime(name) {
		if text, ok := value.(string); ok {
			_, err := attributeValue(name, text)
			return text, err
		}
		if _, ok := value.(time.Time); !ok {
			return "", fmt.Errorf("is a %T, want a time", value)
		}
	}
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return "", errors.New("is not UTF-8")
		}
		return v, nil
	case time.Time:
		text, err := v.MarshalText()
		return string(text), err
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case json.RawMessage:
		return string(v), nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("is a %T, want a text, number, boolean, time or bytes", value)
}

func attributeValue(name, text string) (any, error) {
	if !isTime(name) {
		return text, nil
	}
	var t time.Time
	if err := t.UnmarshalText([]byte(text)); err != nil {
		return nil, errors.New("is no RFC 3339 time")
	}
	return t, nil
}

func isTime(name string) bool { return name == message.AttrTime || name == message.AttrExpiryTime }

// escape encodes a text for a header value. It percent-encodes spaces, quotes, percent signs and everything that is not
// printable ASCII.
func escape(text string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for _, b := range []byte(text) {
		if b > ' ' && b <= '~' && b != '"' && b != '%' {
			out.WriteByte(b)
			continue
		}
		out.WriteByte('%')
		out.WriteByte(hex[b>>4])
		out.WriteByte(hex[b&15])
	}
	return out.String()
}

// unescape decodes a header value. It first removes the quotes of older senders and then percent-decodes once.
func unescape(value string) (string, error) {
	value, err := unquote(strings.Trim(value, " \t"))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			out.WriteByte(value[i])
			continue
		}
		if i+2 >= len(value) {
			return "", errors.New("ends within a percent-encoded byte")
		}
		b, err := strconv.ParseUint(value[i+1:i+3], 16, 8)
		if err != nil {
			return "", errors.New("has a percent sign before no hexadecimal number")
		}
		out.WriteByte(byte(b))
		i += 2
	}
	if !utf8.ValidString(out.String()) {
		return "", errors.New("is not UTF-8")
	}
	return out.String(), nil
}

// unquote removes double quotes around a value, and the backslashes inside.
func unquote(value string) (string, error) {
	if len(value) < 2 || value[0] != '"' {
		return value, nil
	}
	var out strings.Builder
	for i := 1; i < len(value); i++ {
		switch {
		case value[i] == '"' && i == len(value)-1:
			return out.String(), nil
		case value[i] == '"':
			return "", errors.New("goes on behind its quotes")
		case value[i] == '\\' && i+1 < len(value):
			i++
		}
		out.WriteByte(value[i])
	}
	return "", errors.New("has quotes that do not end")
}
