package message

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTextIsPlainIfItsJSONHasNoEscapes(t *testing.T) {
	t.Parallel()
	for length := range 40 {
		for at := range length {
			for b := range 256 {
				text := strings.Repeat("a", at) + string([]byte{byte(b)}) + strings.Repeat("~", length-at-1)
				encoded, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				want := string(encoded) == `"`+text+`"`
				if html := strings.ContainsRune("<>&", rune(b)); html { // Marshal escapes these
					want = true
				}
				if got := isPlain(text); got != want {
					t.Fatalf("%q is plain: %t, want %t", text, got, want)
				}
			}
		}
	}
}
