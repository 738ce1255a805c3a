package shard

import (
	"strings"
	"testing"
)

func FuzzQuote(f *testing.F) {
	f.Add("luatx 1, namespace n, own tags")
	f.Add("'\\\n\x00\xff]]")
	f.Fuzz(func(t *testing.T, s string) {
		quoted := Quote(s)
		if quoted[0] != '\'' || quoted[len(quoted)-1] != '\'' || strings.ContainsAny(quoted[1:len(quoted)-1], "'\n\r") {
			t.Errorf("%q is no Lua string: %s", s, quoted)
		}
	})
}
