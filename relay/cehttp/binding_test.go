package cehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay/cehttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func event(attrs message.Attributes, data []byte) *message.RawMessage {
	all := message.Attributes{"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.placed"}
	maps.Copy(all, attrs)
	return message.NewRaw(data, all, nil)
}

// wired sends a request through the wire format and returns it as a server reads it.
func wired(t testing.TB, header http.Header, body []byte) (http.Header, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://example.com/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatalf("headers %q: %v", header, err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("headers %q: %v", header, err)
	}
	var data bytes.Buffer
	if _, err := data.ReadFrom(got.Body); err != nil {
		t.Fatal(err)
	}
	return got.Header, data.Bytes()
}

func through(t testing.TB, mode cehttp.Mode, events ...*message.RawMessage) []*message.RawMessage {
	t.Helper()
	header, body, err := cehttp.Encode(mode, events...)
	if err != nil {
		t.Fatal(err)
	}
	back, err := cehttp.Decode(wired(t, header, body))
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func same(a, b *message.RawMessage) bool {
	return reflect.DeepEqual(a.Attributes, b.Attributes) && bytes.Equal(a.Data, b.Data) && (a.Data == nil) == (b.Data == nil)
}

func TestEventsSurviveARoundTripInEveryMode(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 4, 5, 6, 789, time.UTC)
	events := map[string]*message.RawMessage{
		"plain":  event(message.Attributes{"datacontenttype": "application/json"}, []byte(`{"total":5}`)),
		"all":    event(message.Attributes{"datacontenttype": "application/json", "subject": "order/17", "time": at, "expirytime": at.Add(time.Hour), "dataschema": "urn:x", "destination": "billing", "correlationid": "c", "partitionkey": "k", "traceparent": "00-1-2-03", "custom1": "yes"}, []byte(`[1]`)),
		"text":   event(message.Attributes{"datacontenttype": "text/plain; charset=utf-8"}, []byte("grüße")),
		"bytes":  event(message.Attributes{"datacontenttype": "application/octet-stream"}, []byte{0, 1, 0xff}),
		"none":   event(nil, nil),
		"values": event(message.Attributes{"subject": "Euro € 😀 \"100%\"\r\nce-type: x", "source": "/ä ö"}, nil),
		"blanks": event(message.Attributes{"subject": "  around\t"}, nil),
	}
	for name, want := range events {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []cehttp.Mode{cehttp.Structured, cehttp.Binary, cehttp.Batched} {
				if got := through(t, mode, want); len(got) != 1 || !same(got[0], want) {
					t.Errorf("mode %d: %v %q, want %v %q", mode, got[0].Attributes, got[0].Data, want.Attributes, want.Data)
				}
			}
		})
	}
	all := []*message.RawMessage{events["plain"], events["bytes"], events["none"]}
	got := through(t, cehttp.Batched, all...)
	for i := range all {
		if len(got) != len(all) || !same(got[i], all[i]) {
			t.Errorf("batch: event %d of %d differs: %v", i, len(got), got[i])
		}
	}
}

// TestBinaryModeReturnsAttributesAsTextExceptTime checks the results for values that a header cannot distinguish from text.
func TestBinaryModeReturnsAttributesAsTextExceptTime(t *testing.T) {
	t.Parallel()
	got := through(t, cehttp.Binary, event(message.Attributes{
		"n": int64(7), "yes": true, "big": json.Number("1e400"), "raw": []byte("\xff"), "nothing": nil, "time": "2026-01-02T03:04:05Z",
	}, []byte(`1`)))[0]
	want := map[string]any{"n": "7", "yes": "true", "big": "1e400", "raw": "/w==", "datacontenttype": "application/json", "time": time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for name, value := range want {
		if got.Attributes[name] != value {
			t.Errorf("%s is %v, want %v", name, got.Attributes[name], value)
		}
	}
	if _, there := got.Attributes["nothing"]; there {
		t.Error("nil became an attribute")
	}
}

func TestEncodeRejectsInvalidEvents(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode   cehttp.Mode
		event  *message.RawMessage
		speaks string
	}{
		"no id":             {cehttp.Structured, event(message.Attributes{"id": ""}, nil), "id"},
		"no source":         {cehttp.Batched, event(message.Attributes{"source": nil}, nil), "source"},
		"no type":           {cehttp.Binary, event(message.Attributes{"type": ""}, nil), "type"},
		"nil":               {cehttp.Structured, nil, "nil"},
		"upper case":        {cehttp.Binary, event(message.Attributes{"Custom": "x"}, nil), "Custom"},
		"a name of a line":  {cehttp.Binary, event(message.Attributes{"a\r\nb": "x"}, nil), "letters"},
		"data":              {cehttp.Binary, event(message.Attributes{"data": "x"}, nil), "data"},
		"no UTF-8":          {cehttp.Binary, event(message.Attributes{"subject": "\xff"}, nil), "UTF-8"},
		"no time":           {cehttp.Binary, event(message.Attributes{"time": 1}, nil), "time"},
		"a struct":          {cehttp.Binary, event(message.Attributes{"x": struct{}{}}, nil), "struct"},
		"a second header":   {cehttp.Binary, event(message.Attributes{"datacontenttype": "a/b\r\nX: y"}, nil), "header"},
		"blanks":            {cehttp.Binary, event(message.Attributes{"datacontenttype": " a/b"}, nil), "blanks"},
		"a mode in a mode":  {cehttp.Binary, event(message.Attributes{"datacontenttype": "Application/CloudEvents+json"}, nil), "mode"},
		"an unknown mode":   {cehttp.Mode(7), event(nil, nil), "mode 7"},
		"reserved for JSON": {cehttp.Structured, event(message.Attributes{"data_base64": "x"}, nil), "data_base64"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := cehttp.Encode(test.mode, test.event); !errors.Is(err, message.ErrEncode) || !strings.Contains(err.Error(), test.speaks) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, _, err := cehttp.Encode(cehttp.Binary, event(nil, nil), event(nil, nil)); !errors.Is(err, message.ErrEncode) {
		t.Errorf("two events in a request of one: %v", err)
	}
}

func TestDecodeRejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	head := func(pairs ...string) http.Header {
		h := http.Header{"Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Ce-Specversion": {"1.0"}}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	structured := func(media string) http.Header { return http.Header{"Content-Type": {media}} }
	whole := `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	tests := map[string]struct {
		header http.Header
		body   string
		speaks string
	}{
		"nothing":           {http.Header{}, "", "specversion"},
		"version":           {http.Header{"Ce-Specversion": {"0.3"}}, "", "0.3"},
		"no type":           {http.Header{"Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Specversion": {"1.0"}}, "", "type"},
		"twice":             {head("ce-id", "2"), "", "Ce-Id"},
		"no UTF-8":          {head("ce-subject", "%C0%A0"), "", "UTF-8"},
		"no time":           {head("ce-time", "noon"), "", "time"},
		"no attribute":      {head("ce-a_b", "x"), "", "A_b"},
		"format":            {structured("application/cloudevents+avro"), "", "avro"},
		"charset":           {structured("application/cloudevents+json; charset=latin1"), whole, "latin1"},
		"media type":        {structured("application/cloudevents+json; ="), whole, "content type"},
		"no JSON":           {structured("application/cloudevents+json"), "{", "EOF"},
		"no source":         {structured("application/cloudevents+json"), `{"specversion":"1.0","id":"1","type":"t"}`, "source"},
		"a batch of none":   {structured("application/cloudevents-batch+json"), whole, "batch"},
		"in a batch":        {structured("application/cloudevents-batch+json"), "[" + whole + ",{}]", "event 1"},
		"a list in a batch": {structured("application/cloudevents-batch+json"), "[[]]", "event 0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, err := cehttp.Decode(test.header, []byte(test.body))
			if !errors.Is(err, message.ErrDecode) || events != nil || !strings.Contains(err.Error(), test.speaks) {
				t.Errorf("%v, %v", events, err)
			}
		})
	}
}

// FuzzBinary checks that any event either arrives unchanged or fails to encode.
func FuzzBinary(f *testing.F) {
	f.Add("subject", "Euro € 😀", "application/json", []byte(`{}`))
	f.Add("x", "a\r\nHost: evil", "text/plain\r\nX: y", []byte(nil))
	f.Add("Content-Length", "7", "application/cloudevents+json", []byte("\xff"))
	f.Add("id", "\xff", " ", []byte("x"))
	f.Fuzz(func(t *testing.T, name, value, contentType string, data []byte) {
		want := event(message.Attributes{name: value, "datacontenttype": contentType}, data)
		header, body, err := cehttp.Encode(cehttp.Binary, want)
		if err != nil {
			if !errors.Is(err, message.ErrEncode) {
				t.Fatal(err)
			}
			return
		}
		events, err := cehttp.Decode(wired(t, header, body))
		if name == "specversion" && !strings.HasPrefix(value, "1.") {
			return
		}
		if err != nil {
			t.Fatalf("%q=%q: %v", name, value, err)
		}
		got := events[0]
		if name == "time" || name == "expirytime" || name == "datacontenttype" {
			return
		}
		if got.Attributes[name] != value || !bytes.Equal(got.Data, data) || contentType != "" && got.DataContentType() != contentType {
			t.Fatalf("%q=%q %q %q came back as %v %q", name, value, contentType, data, got.Attributes, got.Data)
		}
	})
}
