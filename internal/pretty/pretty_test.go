package pretty_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/internal/test/assert"
)

func TestJSONIndentsSmallAndShallowDocuments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"b":1,"a":[1,2.50,"[[\"{"]}`: "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.50,\n    \"[[\\\"{\"\n  ]\n}",
		` [ ] `:                        "[]",
		`"x"`:                          `"x"`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64): indented(t, strings.Repeat("[", 64)+strings.Repeat("]", 64)),
	} {
		if got, ok := pretty.JSON([]byte(text)); !ok || strings.TrimSpace(got) != want {
			t.Errorf("%.40q: %q, %v", text, got, ok)
		}
	}
}

func indented(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	assert.Must(t, json.Indent(&b, []byte(text), "", "  "))
	return b.String()
}

func TestJSONKeepsDocumentsThatWouldGrowTooMuch(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nesting":         strings.Repeat("[", 65) + strings.Repeat("]", 65),
		"open nesting":    strings.Repeat("[", 1<<20),
		"wide and deep":   strings.Repeat("[", 60) + strings.Repeat("0,", 1<<16) + "0" + strings.Repeat("]", 60),
		"no JSON":         "plain",
		"nothing":         "",
		"too many closed": "]]]]",
	} {
		if got, ok := pretty.JSON([]byte(text)); ok {
			t.Errorf("%s became %d bytes", name, len(got))
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":"\\\""}]}`, "[[[[", `""`, "[]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if text, ok := pretty.JSON(data); ok && (len(text) > 4*len(data)+16<<10 || !json.Valid([]byte(text))) {
			t.Errorf("%q became %q", data, text)
		}
	})
}
