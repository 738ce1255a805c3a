package message

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzIsValid tests that isValid agrees with encoding/json.
func FuzzIsValid(f *testing.F) {
	for _, text := range []string{
		``, ` `, `{}`, `[]`, ` {"a" : [1 , -0.5e+10, true,false , null,"x"] } `, `[1,]`, `[,1]`, `{"a":1,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{1:1}`,
		`[1 2]`, `[1}`, `{"a":1]`, `[`, `{`, `[[]`, `{"a":{}`, `]`, `}`, `,`, `1 1`, `{}{}`, "1\x00", "\x00",
		`0`, `-`, `-0`, `01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1E-1`, `1e1.0`, `+1`, `--1`, `0x1`, `1_0`, `NaN`,
		`tru`, `true`, `truest`, `True`, `nul`, `nulll`, `fals`,
		`"`, `"a`, `"\"`, `"\\"`, `"\/\b\f\n\r\t\""`, `"\a"`, `"\u00e9"`, `"\u12"`, `"\u12g4"`, `"\u`, `"\uABCD`, `"\`, "\"\x1f\"", "\"\x7f\"", "\"\xff\"", "\"\t\"", "\"é\"",
		"\ufeff{}", "\v1", "1\n", "\t1\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := isValid(text), json.Valid(text); got != want {
			t.Errorf("%q: %t, encoding/json says %t", text, got, want)
		}
	})
}

// TestIsValidAgreesWithEncodingJSONAtEveryDepth tests that a value is invalid if its depth exceeds that of encoding/json, which
// could not decode it.
func TestIsValidAgreesWithEncodingJSONAtEveryDepth(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 2, maxDepth - 1, maxDepth, maxDepth + 1, 100 * maxDepth} {
		for open, shut := range map[string]string{"[": "]", `{"a":`: "}", `[{"a":`: "}]"} {
			for _, text := range []string{strings.Repeat(open, depth) + "1" + strings.Repeat(shut, depth), strings.Repeat(open, depth)} {
				if got, want := isValid([]byte(text)), json.Valid([]byte(text)); got != want {
					t.Errorf("%d times %s: %t, encoding/json says %t", depth, open, got, want)
				}
			}
		}
	}
}
