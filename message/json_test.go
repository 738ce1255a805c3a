package message_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
)

type order struct {
	ID    string `json:"id"`
	Pence int64  `json:"pence"`
}

func TestMarshalJSONWritesCloudEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600))
	cases := []struct {
		name string
		msg  json.Marshaler
		want string
	}{
		{"empty", message.New(nil, nil, nil), `{"specversion":"1.0"}`},
		{
			"value", message.New(order{"<&>", math.MaxInt64}, message.Attributes{"id": "1", "type": "t", "source": "/s"}, nil),
			`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"id":"<&>","pence":9223372036854775807}}`,
		},
		{"typed", message.NewTyped(order{"a", 1}, nil, nil), `{"specversion":"1.0","data":{"id":"a","pence":1}}`},
		{
			"extensions", message.New(nil, message.Attributes{"n": int64(math.MaxInt64), "b": true, "time": at, "nothing": nil, "specversion": "1.0"}, nil),
			`{"specversion":"1.0","b":true,"n":9223372036854775807,"time":"2024-01-02T03:04:05.0000006+01:00"}`,
		},
		{
			"raw JSON stays as it is", message.NewRaw([]byte("\n{ \"a\" : \"<\\u0041>\" , \"n\":1.00 }\n"), nil, nil),
			`{"specversion":"1.0","data":{ "a" : "<\u0041>" , "n":1.00 }}`,
		},
		{
			"raw +json", message.NewRaw([]byte(`[1]`), message.Attributes{"datacontenttype": "application/vnd.x+json; charset=utf-8"}, nil),
			`{"specversion":"1.0","datacontenttype":"application/vnd.x+json; charset=utf-8","data":[1]}`,
		},
		{
			"raw text", message.NewRaw([]byte(`1`), message.Attributes{"datacontenttype": "text/plain"}, nil),
			`{"specversion":"1.0","datacontenttype":"text/plain","data_base64":"MQ=="}`,
		},
		{"raw binary", message.NewRaw([]byte{0xff, 0}, nil, nil), `{"specversion":"1.0","data_base64":"/wA="}`},
		{"raw bad UTF-8", message.NewRaw([]byte("\"\xff\""), nil, nil), `{"specversion":"1.0","data_base64":"Iv8i"}`},
		{"raw empty", message.NewRaw([]byte{}, nil, nil), `{"specversion":"1.0","data_base64":""}`},
		{"bytes in a message", message.New([]byte(`{}`), nil, nil), `{"specversion":"1.0","data":{}}`},
		{
			"string", message.New("x", message.Attributes{"datacontenttype": "text/plain"}, nil),
			`{"specversion":"1.0","datacontenttype":"text/plain","data":"x"}`,
		},
		{
			"string of bytes", message.New("\xff", message.Attributes{"datacontenttype": "text/plain"}, nil),
			`{"specversion":"1.0","datacontenttype":"text/plain","data_base64":"/w=="}`,
		},
	}
	for _, c := range cases {
		got, err := c.msg.MarshalJSON()
		if err != nil || string(got) != c.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", c.name, got, err, c.want)
		}
	}
}

func TestAppendJSONReplacesOnlyTheID(t *testing.T) {
	t.Parallel()
	for _, attrs := range []message.Attributes{
		{}, {"id": ""}, {"id": "1", "a": "b", "type": "t"}, {"id": 5, "source": "/s", "z": nil},
	} {
		for _, id := range []string{"", "2", "\"\n"} {
			msg := message.New("x", maps.Clone(attrs), nil)
			got, err := msg.AppendJSON([]byte("b"), id)
			other := maps.Clone(attrs)
			if id != "" {
				other["id"] = id
			}
			want, wantErr := message.New("x", other, nil).MarshalJSON()
			if wantErr == nil {
				want = append([]byte("b"), want...)
			}
			if string(got) != string(want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%v as %q: %s, %v, want %s, %v", attrs, id, got, err, want, wantErr)
			}
			if !reflect.DeepEqual(msg.Attributes, maps.Clone(attrs)) {
				t.Errorf("%v became %v", attrs, msg.Attributes)
			}
		}
	}
}

func TestMarshalJSONOmitsValues(t *testing.T) {
	t.Parallel()
	type key struct{}
	msg := message.New(1, nil, nil)
	msg.WithValue(key{}, "secret")
	if got, err := msg.MarshalJSON(); err != nil || strings.Contains(string(got), "secret") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestMarshalJSONRejectsInvalidAttributesAndData(t *testing.T) {
	t.Parallel()
	for want, msg := range map[string]*message.Message{
		`"data"`:        message.New(nil, message.Attributes{"data": 1}, nil),
		`"data_base64"`: message.New(nil, message.Attributes{"data_base64": "x"}, nil),
		`"id" is a int`: message.New(nil, message.Attributes{"id": 1}, nil),
		`"time"`:        message.New(nil, message.Attributes{"time": "noon"}, nil),
		`"expirytime"`:  message.New(nil, message.Attributes{"expirytime": 5}, nil),
		`"bad"`:         message.New(nil, message.Attributes{"bad": math.NaN()}, nil),
		`data: `:        message.New(func() {}, nil, nil),
	} {
		if _, err := msg.MarshalJSON(); !errors.Is(err, message.ErrEncode) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %s, got %v", want, err)
		}
	}
}

func TestUnmarshalJSONKeepsTheTypesOfAttributes(t *testing.T) {
	t.Parallel()
	var msg message.Message
	text := `{"specversion":"1.0","id":"1","big":9007199254740993,"huge":18446744073709551616,"f":1.50,"yes":true,
		"none":null,"o":{ "a": [1, 2] },"time":"2024-01-02T03:04:05Z"}`
	must(t, json.Unmarshal([]byte(text), &msg))
	want := message.Attributes{
		"specversion": "1.0", "id": "1", "big": int64(9007199254740993), "huge": json.Number("18446744073709551616"),
		"f": json.Number("1.50"), "yes": true, "o": json.RawMessage(`{"a":[1,2]}`),
		"time": time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	if !reflect.DeepEqual(msg.Attributes, want) {
		t.Errorf("got %#v\nwant %#v", msg.Attributes, want)
	}
}

func unmarshal[T any](t *testing.T, text string) T {
	t.Helper()
	var msg message.TypedMessage[T]
	if err := msg.UnmarshalJSON([]byte(text)); err != nil {
		t.Errorf("%s into a %T: %v", text, msg.Data, err)
	}
	return msg.Data
}

func TestUnmarshalJSONDecodesDataByItsContentType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]byte{
		`{"data": { "a" : "<" } }`: []byte(`{ "a" : "<" }`),
		`{"data": "x"}`:            []byte(`"x"`),
		`{"data":null}`:            []byte(`null`),
		`{"data_base64":"AP8="}`:   {0, 0xff},
		`{"data_base64":""}`:       {},
		`{"data_base64":null}`:     nil,
		`{}`:                       nil,

		`{"data":"a\nb","datacontenttype":"text/plain"}`:       []byte("a\nb"),
		`{"data":{"a":1},"datacontenttype":"text/plain"}`:      []byte(`{"a":1}`),
		`{"data":[1, 2],"datacontenttype":"application/json"}`: []byte(`[1, 2]`),
	} {
		if got := unmarshal[[]byte](t, text); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]any{
		`{"data":{"a":1}}`: json.RawMessage(`{"a":1}`),
		`{"data":"x","datacontenttype":"text/plain"}`: "x",
		`{"data_base64":"AA=="}`:                      []byte{0},
		`{}`:                                          nil,
	} {
		if got := unmarshal[any](t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", text, got, want)
		}
	}
	want := order{"a", 5}
	if got := unmarshal[order](t, `{"data":{"id":"a","pence":5}}`); got != want {
		t.Errorf("%+v", got)
	}
	if got := unmarshal[order](t, `{"data_base64":"eyJpZCI6ImEiLCJwZW5jZSI6NX0="}`); got != want {
		t.Errorf("%+v", got)
	}
	if got := unmarshal[string](t, `{"data_base64":"eA==","datacontenttype":"text/plain"}`); got != "x" {
		t.Errorf("%q", got)
	}
	if got := unmarshal[string](t, `{"data":"x","datacontenttype":"text/plain"}`); got != "x" {
		t.Errorf("%q", got)
	}
}

func TestUnmarshalJSONDoesNotDependOnEarlierAttributes(t *testing.T) {
	t.Parallel()
	const text = "{\"same\":\"1\",\"other\":\"2\",\"escaped\":\"a\\n\",\"invalid\":\"\xff\",\"type\":\"t\",\"time\":\"2024-01-02T03:04:05Z\",\"n\":1}"
	var want, msg message.RawMessage
	must(t, want.UnmarshalJSON([]byte(text)))
	msg.Attributes = message.Attributes{
		"same": "1", "other": "1", "escaped": `a\n`, "invalid": "\xff", "type": 5, "time": "2024-01-02T03:04:05Z", "n": "1", "gone": "x",
	}
	must(t, msg.UnmarshalJSON([]byte(text)))
	if !reflect.DeepEqual(msg.Attributes, want.Attributes) {
		t.Errorf("got %#v\nwant %#v", msg.Attributes, want.Attributes)
	}
}

func TestUnmarshalJSONRejectsInvalidTextAndKeepsTheMessage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                "unexpected EOF",
		`{"id":"1"`:                       "unexpected EOF",
		`[]`:                              "JSON object",
		`null`:                            "JSON object",
		`{} {}`:                           "follows",
		`{"id":"1","id":"2"}`:             `"id" comes twice`,
		`{"id":1}`:                        `"id" is a int64`,
		`{"type":{}}`:                     `"type"`,
		`{"time":"yesterday"}`:            `"time"`,
		`{"expirytime":true}`:             `"expirytime"`,
		`{"specversion":"0.3"}`:           `"0.3" is not supported`,
		`{"data":1,"data_base64":"AA=="}`: "both",
		`{"data_base64":"?"}`:             "data_base64",
		`{"data_base64":1}`:               "data_base64",
		`{"data":"text"}`:                 "data",
		`{"data_base64":"AA=="}`:          "data_base64",
		`{"data_base64":"AA==","datacontenttype":"image/png"}`: "image/png",
	} {
		msg := message.NewTyped(order{ID: "before"}, message.Attributes{"id": "before"}, nil)
		err := msg.UnmarshalJSON([]byte(text))
		if !errors.Is(err, message.ErrDecode) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", text, want, err)
		}
		if msg.Data.ID != "before" || msg.ID() != "before" {
			t.Errorf("%s: changed the message", text)
		}
	}
}

func TestUnmarshalJSONKeepsAcking(t *testing.T) {
	t.Parallel()
	msg := message.NewRaw(nil, nil, message.NewAcking(nil, nil))
	if err := json.Unmarshal([]byte(`{"data":1}`), msg); err != nil || !msg.Ack() {
		t.Errorf("the acking is gone, or %v", err)
	}
}

// FuzzJSON tests that decoded messages can be encoded and decoded again without a loss, always to the same bytes.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":[1,2.50,"<é>"]}}`,
		`{"data_base64":"AP8=","datacontenttype":"image/png"}`,
		`{"data":"text","datacontenttype":"text/plain","time":"2024-01-02T03:04:05.6+01:00"}`,
		`{"big":9007199254740993,"f":1e400,"neg":-0,"o":{"x": null},"":[]}`,
		`{"data": null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var one, two message.RawMessage
		if one.UnmarshalJSON(text) != nil {
			return
		}
		encoded, err := one.MarshalJSON()
		if err != nil {
			t.Fatalf("cannot encode what was decoded: %v", err)
		}
		if err := two.UnmarshalJSON(encoded); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if !bytes.Equal(one.Data, two.Data) || (one.Data == nil) != (two.Data == nil) {
			t.Fatalf("data %q became %q in %s", one.Data, two.Data, encoded)
		}
		again, err := two.MarshalJSON()
		if err != nil || !bytes.Equal(encoded, again) {
			t.Fatalf("%s became %s, %v", encoded, again, err)
		}
		var generic message.Message
		must(t, generic.UnmarshalJSON(encoded))
		if _, err := json.Marshal(&generic); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRawData tests that any data is decoded byte for byte, except for white space around JSON.
func FuzzRawData(f *testing.F) {
	f.Add([]byte(`{"a": 1}`), "application/json")
	f.Add([]byte{0xff}, "")
	f.Add([]byte(`"x"`), "text/plain")
	f.Add([]byte{}, "a/b+json")
	f.Fuzz(func(t *testing.T, data []byte, contentType string) {
		contentType = strings.ToValidUTF8(contentType, "")
		raw := message.NewRaw(data, message.Attributes{message.AttrDataContentType: contentType}, nil)
		encoded, err := raw.MarshalJSON()
		must(t, err)
		var back message.RawMessage
		if err := back.UnmarshalJSON(encoded); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if !bytes.Equal(back.Data, data) && !bytes.Equal(back.Data, bytes.Trim(data, " \t\r\n")) {
			t.Fatalf("%q became %q", data, back.Data)
		}
		if back.DataContentType() != contentType {
			t.Fatalf("content type %q became %q", contentType, back.DataContentType())
		}
	})
}

// TestTextsAreWrittenAsEncodingJSONWritesThem tests that texts are written as encoding/json writes them: each byte, and some
// that are not ASCII.
func TestTextsAreWrittenAsEncodingJSONWritesThem(t *testing.T) {
	t.Parallel()
	texts := []string{"", "plain text", "a<b>&c", "é", "\u2028", "\xff", "~\x7f"}
	for b := range 256 {
		texts = append(texts, "x"+string([]byte{byte(b)})+"y")
	}
	for _, text := range texts {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		must(t, enc.Encode(map[string]string{text: text}))
		got, err := message.New(nil, message.Attributes{text: text}, nil).MarshalJSON()
		if end := strings.TrimPrefix(strings.TrimSpace(want.String()), "{"); err != nil || string(got) != `{"specversion":"1.0",`+end {
			t.Errorf("%q: %s, want the end %s; %v", text, got, end, err)
		}
	}
}
