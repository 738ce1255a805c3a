package cehttp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscapeEncodesCharactersThatHeadersCannotCarry(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              "",
		"/orders/17":    "/orders/17",
		"Euro € 😀":      "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`say "100%"`:    "say%20%22100%25%22",
		"a\r\nb: c\x7f": "a%0D%0Ab:%20c%7F",
	} {
		if got := escape(text); got != want {
			t.Errorf("%q is escaped as %q, want %q", text, got, want)
		}
	}
}

func TestUnescapeReadsEscapedAndQuotedValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"plain":              "plain",
		"%45uro%20%e2%82%ac": "Euro €", // needless encoding, in lower case
		"%2541":              "%41",    // decoded once only
		`"a \"b\" \\ c%20d"`: `a "b" \ c d`,
		" padded\t":          "padded",
		`""`:                 "",
		`"`:                  `"`,
		"more text":          "more text", // of older senders
	} {
		if got, err := unescape(value); got != want || err != nil {
			t.Errorf("%q is read as %q, %v, want %q", value, got, err, want)
		}
	}
	for _, value := range []string{"%", "a%2", "%zz", "%+1", "%C0%A0", "%ff", `"a" b`, `"a`, `"a\"`} {
		if got, err := unescape(value); err == nil {
			t.Errorf("%q is read as %q", value, got)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a b", "Euro € 😀", `"quoted"`, "%41", "\x00\r\n", "\xff", "ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value := escape(text)
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
			t.Fatalf("%q is escaped as %q", text, value)
		}
		back, err := unescape(value)
		if utf8.ValidString(text) != (err == nil) || err == nil && back != text {
			t.Fatalf("%q comes back from %q as %q, %v", text, value, back, err)
		}
		_, _ = unescape(text) // any text must not panic
	})
}
