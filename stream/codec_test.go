package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// fields converts the result of a marshal function to the fields that a subscriber reads.
func fields(t testing.TB, pairs []any) map[string]any {
	t.Helper()
	if len(pairs)%2 != 0 {
		t.Fatalf("%d fields and values", len(pairs))
	}
	out := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if _, twice := out[name]; !ok || twice {
			t.Fatalf("field %v is no text or comes twice", pairs[i])
		}
		switch v := pairs[i+1].(type) {
		case []byte:
			out[name] = string(v)
		default:
			out[name] = v
		}
	}
	return out
}

var noon = time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", 2*3600))

func TestBinaryWritesAttributesAsFields(t *testing.T) {
	t.Parallel()
	pairs, err := stream.Binary(message.NewRaw([]byte(`{"a":1}`), message.Attributes{
		"id": "7", "source": "/shop", "type": "order.placed", "datacontenttype": "application/json", "time": noon,
		"expirytime": "2026-07-02T00:00:00Z", "flag": true, "count": 3, "blob": []byte{1, 2}, "ratio": 1.5,
		"number": json.Number("12.50"), "list": json.RawMessage(`[1]`), "nothing": nil, "wait": time.Second,
	}, nil))
	redistest.Must(t, err)
	want := []any{
		"ce_specversion", "1.0", "ce_blob", "AQI=", "ce_count", "3", "content-type", "application/json",
		"ce_expirytime", "2026-07-02T00:00:00Z", "ce_flag", "true", "ce_id", "7", "ce_list", "[1]", "ce_number", "12.50",
		"ce_ratio", "1.5", "ce_source", "/shop", "ce_time", "2026-07-01T12:00:00.123456789+02:00", "ce_type", "order.placed",
		"ce_wait", "1s", "data", []byte(`{"a":1}`),
	}
	if !reflect.DeepEqual(pairs, want) {
		t.Errorf("got  %q\nwant %q", pairs, want)
	}
}

func TestBinaryRejectsInvalidAttributes(t *testing.T) {
	t.Parallel()
	for name, attrs := range map[string]message.Attributes{
		"no name":          {"": "x"},
		"a struct":         {"x": struct{}{}},
		"a time as number": {"time": 5},
		"a time as text":   {"expirytime": "tomorrow"},
	} {
		if _, err := stream.Binary(message.NewRaw(nil, attrs, nil)); !errors.Is(err, message.ErrEncode) {
			t.Errorf("%s: error is %v, want ErrEncode", name, err)
		}
	}
}

func TestUnmarshalReadsStructuredAndPlainEntries(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		values map[string]any
		data   string
		attrs  message.Attributes
	}{
		"structured": {
			map[string]any{"content-type": "Application/CloudEvents+JSON; charset=utf-8", "data": `{"specversion":"1.0","id":"7","data":{"a":1}}`},
			`{"a":1}`,
			message.Attributes{"specversion": "1.0", "id": "7"},
		},
		"structured, with the id field of Watermill": {
			map[string]any{"content-type": "application/cloudevents+json", "data": `{"specversion":"1.0","id":"7"}`, "_watermill_message_uuid": "8"},
			"",
			message.Attributes{"specversion": "1.0", "id": "7"},
		},
		"binary, with the id field of Watermill": {
			map[string]any{"ce_specversion": "1.0", "ce_id": "7", "data": "x", "_watermill_message_uuid": "8"},
			"x",
			message.Attributes{"specversion": "1.0", "id": "7"},
		},
		"plain with two fields": {
			map[string]any{"type": "order.placed", "data": "x"},
			"x",
			message.Attributes{"specversion": "1.0", "id": "1-0", "type": "order.placed"},
		},
		"plain with metadata that are no object": {
			map[string]any{"metadata": "5", "data": "x"},
			"x",
			message.Attributes{"specversion": "1.0", "id": "1-0", "metadata": "5"},
		},
		"plain with metadata and another field": {
			map[string]any{"metadata": `{"a":"b"}`, "data": "x", "type": "t"},
			"x",
			message.Attributes{"specversion": "1.0", "id": "1-0", "metadata": `{"a":"b"}`, "type": "t"},
		},
		"plain with metadata and no data": {
			map[string]any{"metadata": `{"a":"b"}`, "type": "t"},
			`{"metadata":"{\"a\":\"b\"}","type":"t"}`,
			message.Attributes{"specversion": "1.0", "id": "1-0", "metadata": `{"a":"b"}`, "type": "t", "datacontenttype": "application/json"},
		},
		"plain with data": {
			map[string]any{"type": "order.placed", "id": "7", "Name": "x", "a-b": "y", "time": "noon", "content-type": "text/plain", "specversion": "9", "data": "\xff"},
			"\xff",
			message.Attributes{"specversion": "1.0", "id": "7", "type": "order.placed", "datacontenttype": "text/plain"},
		},
		"plain without data": {
			map[string]any{"type": "order.placed", "Amount": "5<6", "bytes": []byte("b"), "n": 3},
			`{"Amount":"5<6","bytes":"b","n":"3","type":"order.placed"}`,
			message.Attributes{"specversion": "1.0", "id": "1-0", "type": "order.placed", "datacontenttype": "application/json", "bytes": "b", "n": "3"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := stream.Unmarshal("1-0", test.values)
			redistest.Must(t, err)
			if string(msg.Data) != test.data {
				t.Errorf("data is %q, want %q", msg.Data, test.data)
			}
			wantAttributes(t, msg.Attributes, test.attrs)
		})
	}
}

// wantAttributes compares attributes, and times by their instant.
func wantAttributes(t testing.TB, got, want message.Attributes) {
	t.Helper()
	plain := func(a message.Attributes) map[string]string {
		out := map[string]string{}
		for name, v := range a {
			if at, ok := v.(time.Time); ok {
				v = at.UTC()
			}
			out[name] = fmt.Sprintf("%T %v", v, v)
		}
		return out
	}
	if !reflect.DeepEqual(plain(got), plain(want)) {
		t.Errorf("attributes are %v\nwant %v", plain(got), plain(want))
	}
}

func TestStructuredEntryThatIsNoJSONIsRefused(t *testing.T) {
	t.Parallel()
	_, err := stream.Unmarshal("1-0", map[string]any{"content-type": "application/cloudevents+json", "data": "x"})
	if !errors.Is(err, message.ErrDecode) {
		t.Errorf("error is %v, want ErrDecode", err)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("7", "order.placed", "x", "y", []byte(`{"a":1}`), "application/json", int64(0))
	f.Add("", "", "specversion", "", []byte(nil), "application/cloudevents+json", int64(1751364000))
	f.Add("\xff", "t", "data", "v", []byte{0xff}, "", int64(-1))
	f.Fuzz(func(t *testing.T, id, typ, name, value string, data []byte, contentType string, at int64) {
		attrs := message.Attributes{"id": id, "source": "/s", "type": typ, "specversion": "1.0", "datacontenttype": contentType}
		if at > 0 && at < 1<<37 {
			attrs["time"] = time.Unix(at, at%1e9)
		}
		if _, known := attrs[name]; !known && name != "" && name != "expirytime" && name != "time" {
			attrs[name] = value
		}
		pairs, err := stream.Binary(message.NewRaw(data, attrs, nil))
		redistest.Must(t, err)
		msg, err := stream.Unmarshal("1-0", fields(t, pairs))
		redistest.Must(t, err)
		if id == "" {
			attrs["id"] = "1-0"
		}
		wantAttributes(t, msg.Attributes, attrs)
		if !reflect.DeepEqual(msg.Data, data) {
			t.Errorf("data is %#v, want %#v", msg.Data, data)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	f.Add("ce_specversion", "1.0", "ce_time", "x", "data", "y")
	f.Add("content-type", "application/cloudevents+json", "data", `{"id":5}`, "", "")
	f.Add("type", "a", "time", "b", "attributes", `{"type":"x"}`)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g string) {
		for _, unmarshal := range []func(string, map[string]any) (*message.RawMessage, error){
			stream.Unmarshal, stream.UnmarshalOutbox, stream.UnmarshalWatermill, stream.UnmarshalDapr,
		} {
			msg, err := unmarshal("1-0", map[string]any{a: b, c: d, e: g})
			switch {
			case err != nil && !errors.Is(err, message.ErrDecode):
				t.Fatalf("error %v does not wrap ErrDecode", err)
			case err == nil && msg.ID() == "":
				t.Fatal("a message without id")
			}
		}
	})
}

func TestStructuredEntriesSurviveARoundTrip(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`{"a":1}`, "\xff", "text"} {
		attrs := message.Attributes{"id": "7", "source": "/s", "type": "t", "specversion": "1.0", "time": noon, "n": int64(5), "yes": true}
		pairs, err := stream.Structured(message.NewRaw([]byte(data), attrs, nil))
		redistest.Must(t, err)
		msg, err := stream.Unmarshal("1-0", fields(t, pairs))
		redistest.Must(t, err)
		wantAttributes(t, msg.Attributes, attrs)
		if string(msg.Data) != data {
			t.Errorf("data is %q, want %q", msg.Data, data)
		}
	}
}

func TestUnmarshalOutboxReadsFieldsAndAttributes(t *testing.T) {
	t.Parallel()
	msg, err := stream.UnmarshalOutbox("1-0", map[string]any{
		"type": "order.placed", "source": "/field", "destination": "mail", "data": `{"a":1}`,
		"attributes": `{"id":"7","source":"/shop","type":"order.placed","time":"2026-07-01T10:00:00.123456789Z","n":5}`,
	})
	redistest.Must(t, err)
	wantAttributes(t, msg.Attributes, message.Attributes{
		"id": "7", "source": "/shop", "type": "order.placed", "destination": "mail", "time": noon, "n": int64(5),
	})
	wantData(t, msg, `{"a":1}`)

	msg, err = stream.UnmarshalOutbox("1-0", map[string]any{"type": "t"})
	redistest.Must(t, err)
	if msg.ID() != "1-0" || msg.Data != nil {
		t.Errorf("got %v %q", msg.Attributes, msg.Data)
	}
	for name, values := range map[string]map[string]any{
		"no type": {"data": "x"}, "no JSON": {"type": "t", "attributes": "x"}, "nothing": {},
	} {
		if _, err := stream.UnmarshalOutbox("1-0", values); !errors.Is(err, message.ErrDecode) {
			t.Errorf("%s: error is %v, want ErrDecode", name, err)
		}
	}
}
