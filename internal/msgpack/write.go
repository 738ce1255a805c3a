// Package msgpack writes and reads flat maps in MessagePack, such as the attributes of a message: names with texts,
// numbers, booleans, times and bytes.
package msgpack

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"
)

// The first bytes of the formats that this package writes. The fix formats contain their length or value in the same
// byte.
const (
	fixMap    = 0x80
	fixStr    = 0xa0
	codeNil   = 0xc0
	codeFalse = 0xc2
	codeTrue  = 0xc3
	codeBin8  = 0xc4
	codeExt8  = 0xc7
	codeF32   = 0xca
	codeF64   = 0xcb
	codeUint8 = 0xcc
	codeInt8  = 0xd0
	codeFix1  = 0xd4
	codeStr8  = 0xd9
	codeMap16 = 0xde
	negFixInt = 0xe0

	timestamp = -1 // the extension type of a time
)

// AppendMap appends a map in the order of its names, so that the same map always gives the same bytes. It omits nil
// values. It writes a json.RawMessage, a json.Number and a fmt.Stringer as text. Any other type is an error.
func AppendMap(b []byte, m map[string]any) ([]byte, error) {
	names := slices.Sorted(maps.Keys(m))
	names = slices.DeleteFunc(names, func(name string) bool { return m[name] == nil })
	switch n := len(names); {
	case n < 16:
		b = append(b, fixMap|byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, codeMap16), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, codeMap16+1), uint32(n))
	}
	for _, name := range names {
		var err error
		if b, err = appendValue(appendText(b, name), m[name]); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
	}
	return b, nil
}

func appendValue(b []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case bool:
		if v {
			return append(b, codeTrue), nil
		}
		return append(b, codeFalse), nil
	case string:
		return appendText(b, v), nil
	case json.Number:
		return appendText(b, v.String()), nil
	case json.RawMessage:
		return appendText(b, string(v)), nil
	case []byte:
		return append(appendLength(b, codeBin8, len(v)), v...), nil
	case time.Time:
		return appendTime(b, v), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(b, codeF32), math.Float32bits(v)), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(b, codeF64), math.Float64bits(v)), nil
	case int, int8, int16, int32, int64:
		return appendInt(b, reflect.ValueOf(v).Int()), nil
	case uint, uint8, uint16, uint32, uint64:
		return appendUint(b, reflect.ValueOf(v).Uint()), nil
	case fmt.Stringer:
		return appendText(b, v.String()), nil
	}
	return nil, fmt.Errorf("has the type %T instead of text, number, boolean, time or bytes", value)
}

func appendText(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, fixStr|byte(len(s))), s...)
	}
	return append(appendLength(b, codeStr8, len(s)), s...)
}

// appendLength appends a length of one, two or four bytes after its code. code8 is the code of a one-byte length. The
// codes of the other two lengths follow it.
func appendLength(b []byte, code8 byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, code8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, code8+1), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, code8+2), uint32(n))
}

func appendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v)) // its own code
	case v >= math.MinInt8:
		return append(b, codeInt8, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, codeInt8+1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, codeInt8+2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeInt8+3), uint64(v))
}

func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < fixMap:
		return append(b, byte(v)) // its own code
	case v <= math.MaxUint8:
		return append(b, codeUint8, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, codeUint8+1), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, codeUint8+2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUint8+3), v)
}

// appendTime appends the long format, which can hold every time with its nanoseconds. It does not keep the zone.
func appendTime(b []byte, t time.Time) []byte {
	minus := int8(timestamp)
	b = append(b, codeExt8, 12, byte(minus))
	b = binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
	return binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
}
