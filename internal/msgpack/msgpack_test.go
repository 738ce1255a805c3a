package msgpack_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/internal/test/assert"
)

// TestEncodingMatchesTheSpecification checks bytes that other programs read. The first ones are examples of the
// specification.
func TestEncodingMatchesTheSpecification(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 7, time.UTC)
	for text, value := range map[string]any{
		"c3": true, "c2": false, "05": int64(5), "7f": int64(127), "ff": int64(-1), "e0": int64(-32), "cc80": int64(128),
		"d0df": int64(-33), "d1ff7f": int64(-129), "cd0100": int64(256), "ce00010000": int64(65536),
		"d2ffff7fff": int64(-32769), "cf0000000100000000": int64(1 << 32), "d38000000000000000": int64(math.MinInt64),
		"cfffffffffffffffff": uint64(math.MaxUint64), "cb3ff8000000000000": 1.5, "ca3fc00000": float32(1.5),
		"a0": "", "a3616263": "abc", "c4020001": []byte{0, 1},
		"d920" + strings.Repeat("61", 32):    strings.Repeat("a", 32),
		"da0100" + strings.Repeat("61", 256): strings.Repeat("a", 256),
		"c70cff000000070000000069f495c0":     at,
	} {
		want, err := hex.DecodeString("81a16b" + text)
		assert.Must(t, err)
		got, err := msgpack.AppendMap(nil, map[string]any{"k": value})
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T %v: %x, want %x (%v)", value, value, got, want, err)
		}
		m, err := msgpack.ReadMap(want)
		if err != nil || !reflect.DeepEqual(m, map[string]any{"k": value}) {
			t.Errorf("%x: %#v, want %#v (%v)", want, m, value, err)
		}
	}
	for text, want := range map[string]time.Time{ // short forms of a time, which other programs write
		"d6ff69f495c0": at.Truncate(time.Second), "d7ff0000001c69f495c0": at,
	} {
		b, err := hex.DecodeString("81a16b" + text)
		assert.Must(t, err)
		if m, err := msgpack.ReadMap(b); err != nil || m["k"] != want {
			t.Errorf("%s: %v, want %v (%v)", text, m["k"], want, err)
		}
	}
}

func TestOtherGoTypesAreConverted(t *testing.T) {
	t.Parallel()
	address := &url.URL{Scheme: "https", Host: "example.com"}
	b, err := msgpack.AppendMap(nil, map[string]any{
		"number": json.Number("1.50"), "raw": json.RawMessage(`[1]`), "stringer": address, "nothing": nil, "int": 7, "uint8": uint8(200),
		"int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "uint": uint(1), "uint16": uint16(16), "uint32": uint32(32),
	})
	assert.Must(t, err)
	got, err := msgpack.ReadMap(b)
	want := map[string]any{
		"number": "1.50", "raw": "[1]", "stringer": "https://example.com", "int": int64(7), "uint8": int64(200),
		"int8": int64(-8), "int16": int64(-16), "int32": int64(-32), "uint": int64(1), "uint16": int64(16), "uint32": int64(32),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v (%v)", got, want, err)
	}
	assert.ErrorContains(t, assert.ErrOf(msgpack.AppendMap(nil, map[string]any{"odd": struct{}{}})), `"odd": has the type struct {}`, "a struct")
}

func TestMapsOfEverySizeAreDecodedUnchanged(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 15, 16, 1000, 70_000} {
		m := make(map[string]any, n)
		for i := range n {
			m[hex.EncodeToString([]byte{byte(i >> 16), byte(i >> 8), byte(i)})] = int64(i)
		}
		b, err := msgpack.AppendMap(nil, m)
		assert.Must(t, err)
		if got, err := msgpack.ReadMap(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%d members: %d came back (%v)", n, len(got), err)
		}
	}
}

func TestReadMapRejectsInvalidInput(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"": "unexpected end", "81": "unexpected end", "81a16b": "unexpected end", "81a26b": "unexpected end", "dfffffffff": "unexpected end",
		"81a16bc6ffffffff": "unexpected end", "c0": "not that of a map", "7b": "not that of a map", "8105c0": "a name has the type int64",
		"81a16b90": "not supported", "81a16b80": "not supported", "81a16bc1": "not supported", "81a16bd40500": "extension 5",
		"81a16bd4ff00": "a time has 1", "82a16b01a16b02": "occurs twice", "8000": "1 bytes after",
	} {
		b, err := hex.DecodeString(text)
		assert.Must(t, err)
		if m, err := msgpack.ReadMap(b); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, error %v, want %q", text, m, err, says)
		}
	}
}

// FuzzReadMapAcceptsAnyBytes also checks that decoded data stays the same when it is encoded and decoded again.
func FuzzReadMapAcceptsAnyBytes(f *testing.F) {
	for _, m := range []map[string]any{{}, {"a": "b", "t": time.Unix(1, 2)}, {"n": -70000, "f": 1.5, "b": []byte("x"), "y": true}} {
		b, err := msgpack.AppendMap(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := msgpack.ReadMap(b)
		if err != nil {
			return
		}
		b, err = msgpack.AppendMap(nil, m)
		assert.Must(t, err)
		again, err := msgpack.ReadMap(b)
		assert.Must(t, err)
		second, err := msgpack.AppendMap(nil, again)
		if err != nil || !bytes.Equal(b, second) {
			t.Errorf("%x, then %x (%v)", b, second, err)
		}
	})
}
