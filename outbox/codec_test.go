package outbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// FuzzEncodedMessageIsDecodedUnchanged tests attributes, including the destination, and data. White space around JSON may
// differ.
func FuzzEncodedMessageIsDecodedUnchanged(f *testing.F) {
	f.Add("1", "order.placed", "a", "orders", "", []byte(`{"total": 5}`))
	f.Add("ä\x00\"", "<&>", "{a}", "", "text/plain", []byte("plain"))
	f.Add("2", "t", "", "", "application/json", []byte{0xff, 0})
	f.Add("3", "t", "s", "d", "image/png", []byte(nil))
	f.Add("4", "=", "s", "d", "text/plain", []byte("  \"quoted\"\n"))
	f.Fuzz(func(t *testing.T, id, eventType, subject, destination, contentType string, data []byte) {
		attrs := message.Attributes{"id": id, "source": "/shop", "type": eventType, "subject": subject, "destination": destination, "specversion": "1.0"}
		if contentType != "" {
			attrs["datacontenttype"] = contentType
		}
		for _, v := range attrs {
			if text, _ := v.(string); !utf8.ValidString(text) {
				t.Skip("JSON holds UTF-8")
			}
		}
		body, err := outbox.Encode(message.New(data, attrs, nil))
		redistest.Must(t, err)
		if body[0] != '{' {
			t.Fatalf("a body begins with %q, which the script may take for something else", body[0])
		}
		got, err := outbox.Decode(body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if !maps.Equal(got.Attributes, attrs) {
			t.Errorf("attributes %v, want %v", got.Attributes, attrs)
		}
		want := data
		if json.Valid(data) {
			want = bytes.TrimSpace(data)
		}
		if !bytes.Equal(got.Data, data) && !bytes.Equal(got.Data, want) {
			t.Errorf("data %q, want %q", got.Data, want)
		}
		again, err := outbox.Encode(message.Copy(got, any(got.Data)))
		if err != nil || !bytes.Equal(again, body) {
			t.Errorf("encoded again: %s, want %s; %v", again, body, err)
		}
	})
}

// FuzzDecodedBodyCanBeEncodedAgain also tests that no body causes a panic.
func FuzzDecodedBodyCanBeEncodedAgain(f *testing.F) {
	for _, body := range []string{`{"id":"1","data":1}`, `{"id":1}`, `{"data_base64":"AA=="}`, `=abc`, ``, `[]`, `{"id":"1","id":"2"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		msg, err := outbox.Decode(body)
		if err != nil {
			if !errors.Is(err, message.ErrDecode) || !strings.HasPrefix(err.Error(), "outbox: decode: ") {
				t.Errorf("error %v", err)
			}
			return
		}
		again, err := outbox.Encode(message.Copy(msg, any(msg.Data)))
		if err != nil {
			t.Fatalf("%q was read, and cannot be written: %v", body, err)
		}
		if _, err := outbox.Decode(again); err != nil {
			t.Errorf("%q became %q: %v", body, again, err)
		}
	})
}

func TestPublisherReceivesDataOfEachType(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data        any
		contentType string
		want        []byte
	}{
		"none":        {nil, "", nil},
		"JSON":        {[]byte(`{"a":1}`), "", []byte(`{"a":1}`)},
		"raw JSON":    {json.RawMessage(`[1]`), "", []byte(`[1]`)},
		"binary":      {[]byte{0, 0xff}, "application/octet-stream", []byte{0, 0xff}},
		"text":        {"plain", "text/plain", []byte("plain")},
		"a struct":    {struct{ Total int }{5}, "application/json", []byte(`{"Total":5}`)},
		"for no HTML": {map[string]string{"a": "<&>"}, "", []byte(`{"a":"<&>"}`)},
	} {
		attrs := message.Attributes{"id": "1"}
		if c.contentType != "" {
			attrs["datacontenttype"] = c.contentType
		}
		body, err := outbox.Encode(message.New(c.data, attrs, nil))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		msg, err := outbox.Decode(body)
		if err != nil || !bytes.Equal(msg.Data, c.want) {
			t.Errorf("%s: %q, want %q; %v", name, msg.Data, c.want, err)
		}
	}
	_, err := outbox.Encode(message.New(make(chan int), message.Attributes{"id": "7"}, nil))
	if !errors.Is(err, message.ErrEncode) || !strings.HasPrefix(err.Error(), `outbox: encode "7": `) {
		t.Errorf("a channel: %v", err)
	}
}
