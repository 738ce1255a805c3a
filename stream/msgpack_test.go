package stream

import (
	"maps"
	"strings"
	"testing"
)

func TestTextMap(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70000)
	many := map[string]string{}
	manyBytes := "\xde\x00\x20"
	for i := range 32 {
		key := string(rune('A' + i))
		many[key] = "v"
		manyBytes += "\xa1" + key + "\xa1v"
	}
	for name, test := range map[string]struct {
		data string
		want map[string]string // nil with bad: refused
		bad  bool
	}{
		"nothing":        {"", nil, false},
		"nil":            {"\xc0", nil, false},
		"empty":          {"\x80", map[string]string{}, false},
		"one":            {"\x81\xa1a\xa2bc", map[string]string{"a": "bc"}, false},
		"str8":           {"\x81\xd9\x01a\xd9\x00", map[string]string{"a": ""}, false},
		"str16":          {"\x81\xda\x00\x01a\xda\x00\x01b", map[string]string{"a": "b"}, false},
		"str32":          {"\x81\xa1a\xdb\x00\x01\x11\x70" + long, map[string]string{"a": long}, false},
		"bin":            {"\x83\xa1a\xc4\x01b\xa1c\xc5\x00\x01d\xa1e\xc6\x00\x00\x00\x01f", map[string]string{"a": "b", "c": "d", "e": "f"}, false},
		"map16":          {manyBytes, many, false},
		"map32":          {"\xdf\x00\x00\x00\x01\xa1a\xa1b", map[string]string{"a": "b"}, false},
		"a number":       {"\x81\xa1a\x05", nil, true},
		"cut":            {"\x81\xa1a\xa5b", nil, true},
		"cut length":     {"\x81\xda\x00", nil, true},
		"more behind":    {"\x80\x80", nil, true},
		"no map":         {"\x91\xa1a", nil, true},
		"many announced": {"\xdf\xff\xff\xff\xff", nil, true},
		"long announced": {"\x81\xdb\xff\xff\xff\xff", nil, true},
	} {
		got, err := textMap([]byte(test.data))
		if (err != nil) != test.bad || !maps.Equal(got, test.want) {
			t.Errorf("%s: got %.50v, error %v", name, got, err)
		}
	}
}

func FuzzTextMap(f *testing.F) {
	f.Add([]byte("\x82\xa1a\xa2bc\xd9\x01d\xc4\x01e"))
	f.Add([]byte("\xdf\xff\xff\xff\xff\xa1a\xa1b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := textMap(data)
		size := 0
		for k, v := range got {
			size += len(k) + len(v)
		}
		if err == nil && size > len(data) {
			t.Errorf("%d bytes of %d", size, len(data))
		}
	})
}
