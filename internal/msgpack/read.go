package msgpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

var errShort = errors.New("msgpack: unexpected end")

// ReadMap reads a map that must fill b. Integers become int64 if they fit, and otherwise uint64. Times are in UTC.
// Nil values are omitted. Lists, nested maps, other extensions and duplicate names are errors.
func ReadMap(b []byte) (map[string]any, error) {
	r := reader{b}
	n, err := r.mapLength()
	if err != nil {
		return nil, err
	}
	if n > len(r.left)/2 { // a name and a value take at least one byte each
		return nil, errShort
	}
	m := make(map[string]any, n)
	for range n {
		if err := r.member(m); err != nil {
			return nil, err
		}
	}
	if len(r.left) > 0 {
		return nil, fmt.Errorf("msgpack: %d bytes after the map", len(r.left))
	}
	return m, nil
}

type reader struct{ left []byte }

func (r *reader) member(m map[string]any) error {
	key, err := r.value()
	if err != nil {
		return err
	}
	name, ok := key.(string)
	if !ok {
		return fmt.Errorf("msgpack: a name has the type %T instead of text", key)
	}
	value, err := r.value()
	if err != nil {
		return fmt.Errorf("msgpack: %q: %w", name, err)
	}
	if _, twice := m[name]; twice {
		return fmt.Errorf("msgpack: the name %q occurs twice", name)
	}
	if value != nil {
		m[name] = value
	}
	return nil
}

func (r *reader) mapLength() (int, error) {
	code, err := r.code()
	switch {
	case err != nil:
		return 0, err
	case code&0xf0 == fixMap:
		return int(code & 0x0f), nil
	case code == codeMap16 || code == codeMap16+1:
		n, err := r.uint(2 << (code - codeMap16))
		return int(n), err
	}
	return 0, fmt.Errorf("msgpack: the first byte %#x is not that of a map", code)
}

func (r *reader) value() (any, error) {
	code, err := r.code()
	switch {
	case err != nil:
		return nil, err
	case code < fixMap:
		return int64(code), nil
	case code >= negFixInt:
		return int64(int8(code)), nil
	case code&0xe0 == fixStr:
		return r.text(int(code &^ 0xe0))
	case code == codeNil:
		return nil, nil
	case code == codeFalse, code == codeTrue:
		return code == codeTrue, nil
	case code >= codeBin8 && code < codeBin8+3:
		n, err := r.uint(1 << (code - codeBin8))
		if err != nil {
			return nil, err
		}
		return r.readBytes(int(n))
	case code >= codeStr8 && code < codeStr8+3:
		n, err := r.uint(1 << (code - codeStr8))
		if err != nil {
			return nil, err
		}
		return r.text(int(n))
	case code >= codeExt8 && code < codeExt8+3:
		n, err := r.uint(1 << (code - codeExt8))
		if err != nil {
			return nil, err
		}
		return r.extension(int(n))
	case code >= codeFix1 && code < codeFix1+5:
		return r.extension(1 << (code - codeFix1))
	}
	return r.number(code)
}

func (r *reader) number(code byte) (any, error) {
	switch {
	case code == codeF32:
		bits, err := r.uint(4)
		return math.Float32frombits(uint32(bits)), err
	case code == codeF64:
		bits, err := r.uint(8)
		return math.Float64frombits(bits), err
	case code >= codeUint8 && code < codeUint8+4:
		v, err := r.uint(1 << (code - codeUint8))
		if v > math.MaxInt64 {
			return v, err
		}
		return int64(v), err
	case code >= codeInt8 && code < codeInt8+4:
		size := 1 << (code - codeInt8)
		v, err := r.uint(size)
		shift := 64 - 8*size
		return int64(v<<shift) >> shift, err // extends the sign
	}
	return nil, fmt.Errorf("msgpack: code %#x is not supported", code)
}

func (r *reader) extension(n int) (any, error) {
	kind, err := r.code()
	if err != nil {
		return nil, err
	}
	data, err := r.readBytes(n)
	if err != nil {
		return nil, err
	}
	if int8(kind) != timestamp {
		return nil, fmt.Errorf("msgpack: extension %d is not supported", int8(kind))
	}
	switch n {
	case 4:
		return time.Unix(int64(binary.BigEndian.Uint32(data)), 0).UTC(), nil
	case 8:
		v := binary.BigEndian.Uint64(data)
		return time.Unix(int64(v&(1<<34-1)), int64(v>>34)).UTC(), nil
	case 12:
		return time.Unix(int64(binary.BigEndian.Uint64(data[4:])), int64(binary.BigEndian.Uint32(data))).UTC(), nil
	}
	return nil, fmt.Errorf("msgpack: a time has %d bytes", n)
}

func (r *reader) text(n int) (any, error) {
	data, err := r.readBytes(n)
	return string(data), err
}

func (r *reader) code() (byte, error) {
	data, err := r.readBytes(1)
	if err != nil {
		return 0, err
	}
	return data[0], nil
}

func (r *reader) uint(size int) (v uint64, err error) {
	data, err := r.readBytes(size)
	for _, c := range data {
		v = v<<8 | uint64(c)
	}
	return v, err
}

func (r *reader) readBytes(n int) ([]byte, error) {
	if n < 0 || n > len(r.left) {
		return nil, errShort
	}
	data := r.left[:n:n]
	r.left = r.left[n:]
	return data, nil
}
