package message

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// FuzzMembers tests that readMembers returns the members that encoding/json finds, or an error if one is duplicate.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : 1 , "b":[1,{"c":"]}"}] , "d":"x\"}" } `, `{"a":{"a":1},"b":null}`, `{"a\\":"\\","\u0061":true}`,
		"{\"\xff\":\"\xff\"}", `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[{}]`, `"{"`, `{"a":1`, `{} {}`, ``, `{`, `{"a":1,}`, `{,}`, `{"a":tru}`, `{"a":01}`, `{"a":0""}`, `{"a":"\`, `{"a":[}]}`, `{"a" 1}`,
		"{\"a\":\"\x01\"}", `{"a":}`, `{1:2}`, `{}x`, ` `,
		"{" + strings.Repeat(`"a":1,`, 20) + `"b":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := readMembers(text, nil)
		var want map[string]json.RawMessage
		wantErr := json.Unmarshal(text, &want)
		switch {
		case err == nil && (wantErr != nil || want == nil):
			t.Fatalf("%q was read; encoding/json says %v", text, wantErr)
		case err != nil && wantErr == nil && want != nil && !strings.Contains(err.Error(), "comes twice"):
			t.Fatalf("%q was not read: %v", text, err)
		case err != nil:
			return
		}
		if len(found) != len(want) {
			t.Fatalf("%q has %d members, want %d", text, len(found), len(want))
		}
		for _, m := range found {
			if string(m.value) != string(want[m.name]) {
				t.Fatalf("%q: member %q is %q, want %q", text, m.name, m.value, want[m.name])
			}
		}
	})
}

// TestDuplicateMembersAreRejected covers few members and many, which use different lookups.
func TestDuplicateMembersAreRejected(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 15, 16, 17, 40} {
		for again := range n {
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, `"m%d":%d,`, i, i)
			}
			if _, err := readMembers([]byte("{"+strings.TrimSuffix(text.String(), ",")+"}"), nil); err != nil {
				t.Errorf("%d members: %v", n, err)
			}
			fmt.Fprintf(&text, `"m%d":0`, again)
			if _, err := readMembers([]byte("{"+text.String()+"}"), nil); err == nil || !strings.Contains(err.Error(), "comes twice") {
				t.Errorf("%d members, number %d again: %v", n, again, err)
			}
		}
	}
}

func TestDecodedMessageDoesNotChangeWithItsSourceText(t *testing.T) {
	t.Parallel()
	text := []byte(`{"id":"1","source":"/s","type":"t","data":{"a":1}}`)
	raw, loose := NewRaw(nil, nil, nil), New(nil, nil, nil)
	for _, err := range []error{raw.UnmarshalJSON(text), loose.UnmarshalJSON(text)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	clear(text)
	if got, _ := loose.Data.(json.RawMessage); string(raw.Data) != `{"a":1}` || string(got) != `{"a":1}` || raw.ID() != "1" {
		t.Errorf("data %q and %q, id %q", raw.Data, loose.Data, raw.ID())
	}
}
