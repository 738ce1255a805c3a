package cloudevents_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/cloudevents"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// required are the attributes that every event has.
const required = `"specversion":"1.0","id":"A234-1234-1234","source":"https://github.com/cloudevents/spec/pull","type":"com.example.someevent"`

// valid are events in the JSON format, after the samples of the specification, with their contents besides the required
// attributes.
var valid = []struct {
	name, json string
	attributes message.Attributes // besides or instead of the required ones
	data       string             // as bytes
	none       bool               // there is no data
}{
	{name: "required alone", json: required, none: true},
	{
		name: "all attributes", json: required + `,"subject":"123","time":"2018-04-05T17:31:00Z","datacontenttype":"text/xml","dataschema":"https://example.com/s#1","data":"<much wow=\"xml\"/>"`,
		attributes: message.Attributes{"subject": "123", "time": at("2018-04-05T17:31:00Z"), "datacontenttype": "text/xml", "dataschema": "https://example.com/s#1"},
		data:       `<much wow="xml"/>`,
	},
	{name: "a relative source", json: strings.Replace(required, "https://github.com/cloudevents/spec/pull", "/sensors/tn-1234567/alerts", 1), attributes: message.Attributes{"source": "/sensors/tn-1234567/alerts"}, none: true},
	{name: "a URN", json: strings.Replace(required, "https://github.com/cloudevents/spec/pull", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", 1), attributes: message.Attributes{"source": "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"}, none: true},
	{name: "JSON without a type", json: required + `,"data":{"total":5}`, data: `{"total":5}`},
	{name: "a number", json: required + `,"data":1.5`, data: `1.5`},
	{name: "a truth value", json: required + `,"data":true`, data: `true`},
	{name: "a text in JSON", json: required + `,"datacontenttype":"application/json","data":"text"`, attributes: message.Attributes{"datacontenttype": "application/json"}, data: `"text"`},
	{name: "a list", json: required + `,"datacontenttype":"application/json; charset=utf-8","data":[1,"a",null]`, attributes: message.Attributes{"datacontenttype": "application/json; charset=utf-8"}, data: `[1,"a",null]`},
	{name: "JSON of another type", json: required + `,"datacontenttype":"application/vnd.order+json","data_base64":"e30="`, attributes: message.Attributes{"datacontenttype": "application/vnd.order+json"}, data: `{}`},
	{name: "bytes", json: required + `,"datacontenttype":"application/octet-stream","data_base64":"AP/+"`, attributes: message.Attributes{"datacontenttype": "application/octet-stream"}, data: "\x00\xff\xfe"},
	{name: "bytes without a type", json: required + `,"data_base64":"AP/+"`, data: "\x00\xff\xfe"},
	{name: "no bytes at all", json: required + `,"datacontenttype":"text/plain","data_base64":""`, attributes: message.Attributes{"datacontenttype": "text/plain"}, data: ""},
	{name: "plain text", json: required + `,"datacontenttype":"text/plain","data":"grüße, 世界 \u0001\n"`, attributes: message.Attributes{"datacontenttype": "text/plain"}, data: "grüße, 世界 \u0001\n"},
	{name: "data before everything", json: `"data":{"a":1},` + required, data: `{"a":1}`},
	{
		name: "extensions of every type", json: required + `,"comexampleextension1":"value","comexampleothervalue":5,"negative":-2147483648,"flag":true,"off":false,"empty":"","quoted":"\"a\\b\""`,
		attributes: message.Attributes{"comexampleextension1": "value", "comexampleothervalue": int64(5), "negative": int64(-2147483648), "flag": true, "off": false, "quoted": `"a\b"`},
		none:       true,
	},
	{name: "Unicode", json: strings.Replace(required, "A234-1234-1234", "ü-€-𝄞", 1) + `,"subject":"日本 100%"`, attributes: message.Attributes{"id": "ü-€-𝄞", "subject": "日本 100%"}, none: true},
	{name: "a time with an offset", json: required + `,"time":"2026-07-01T12:00:00.123456789+02:00"`, attributes: message.Attributes{"time": at("2026-07-01T10:00:00.123456789Z")}, none: true},
	{name: "a trace", json: required + `,"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"a=b"`, attributes: message.Attributes{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}, none: true},
	{name: "an expiry", json: required + `,"expirytime":"2026-07-01T12:00:00Z","partitionkey":"k","correlationid":"c"`, attributes: message.Attributes{"expirytime": at("2026-07-01T12:00:00Z"), "partitionkey": "k", "correlationid": "c"}, none: true},
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// TestEventsConvertInBothDirections decodes each event on both sides, and converts it directly, through the SDK's JSON, and
// through stream entries in both modes.
func TestEventsConvertInBothDirections(t *testing.T) {
	t.Parallel()
	for _, test := range valid {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			want := message.NewRaw([]byte(test.data), message.Attributes{
				"specversion": "1.0", "id": "A234-1234-1234", "source": "https://github.com/cloudevents/spec/pull", "type": "com.example.someevent",
			}, nil)
			maps.Copy(want.Attributes, test.attributes)
			if test.none {
				want.Data = nil
			}
			text := []byte("{" + test.json + "}")
			var ours message.RawMessage
			redistest.Must(t, ours.UnmarshalJSON(text))
			delete(ours.Attributes, "empty") // CloudEvents attributes have no empty values
			same(t, "read here", &ours, want)
			same(t, "read by the SDK", from(t, fromSDK(t, text)), want)

			e, err := cloudevents.ToEvent(&ours)
			redistest.Must(t, err)
			same(t, "to the SDK and back", from(t, e), want)
			written, err := json.Marshal(e)
			redistest.Must(t, err)
			var again message.RawMessage
			redistest.Must(t, again.UnmarshalJSON(written))
			same(t, "written by the SDK", &again, want)

			fields, err := stream.Structured(&ours)
			redistest.Must(t, err)
			entry, ok := fields[3].([]byte)
			if !ok {
				t.Fatalf("fields %v", fields)
			}
			if strings.Contains(test.json, "+json") { // which the SDK treats as text
				if err := json.Unmarshal(entry, new(event.Event)); err == nil {
					t.Error("the SDK reads types that end in +json: the documentation says that it does not")
				}
			} else {
				same(t, "a structured entry", from(t, fromSDK(t, entry)), want)
			}
			fields, err = stream.Binary(&ours)
			redistest.Must(t, err)
			values := map[string]any{}
			for i := 0; i < len(fields); i += 2 {
				name, _ := fields[i].(string)
				values[name] = fields[i+1]
			}
			read, err := stream.Unmarshal("1-0", values)
			redistest.Must(t, err)
			e, err = cloudevents.ToEvent(read)
			redistest.Must(t, err)
			same(t, "a binary entry", from(t, e), asText(want)) // whose attributes are texts

			waiting, err := cloudevents.OutboxEvent(fromSDK(t, text))
			redistest.Must(t, err)
			e, err = cloudevents.FromOutbox(waiting)
			redistest.Must(t, err)
			same(t, "through the outbox", from(t, e), want)
		})
	}
}

func fromSDK(t *testing.T, text []byte) event.Event {
	t.Helper()
	var e event.Event
	redistest.Must(t, json.Unmarshal(text, &e))
	if value, ok := e.Extensions()["empty"]; ok && value == "" {
		redistest.Must(t, e.Context.SetExtension("empty", nil))
	}
	return e
}

func from(t *testing.T, e event.Event) *message.RawMessage {
	t.Helper()
	msg, err := cloudevents.FromEvent(e)
	redistest.Must(t, err)
	return msg
}

func asText(msg *message.RawMessage) *message.RawMessage {
	out := message.Copy(msg, msg.Data)
	for name, value := range out.Attributes {
		if _, isTime := value.(time.Time); !isTime {
			out.Attributes[name] = fmt.Sprint(value)
		}
	}
	return out
}

// same compares messages, and times as instants.
func same(t *testing.T, way string, got, want *message.RawMessage) {
	t.Helper()
	if (got.Data == nil) != (want.Data == nil) || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%s: data %q, want %q", way, got.Data, want.Data)
	}
	if a, b := plain(got.Attributes), plain(want.Attributes); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: attributes %v, want %v", way, a, b)
	}
}

func plain(attrs message.Attributes) message.Attributes {
	out := maps.Clone(attrs)
	for name, value := range out {
		if when, ok := value.(time.Time); ok {
			out[name] = when.UTC().Format(time.RFC3339Nano)
		}
	}
	return out
}

func TestInvalidEventsAreRejectedOnBothSides(t *testing.T) {
	t.Parallel()
	without := func(name string) string {
		var all map[string]any
		redistest.Must(t, json.Unmarshal([]byte("{"+required+"}"), &all))
		delete(all, name)
		text, err := json.Marshal(all)
		redistest.Must(t, err)
		return string(text)
	}
	for name, text := range map[string]string{
		"no id": without("id"), "no source": without("source"), "no type": without("type"),
		"an empty id":      `{"specversion":"1.0","id":"","source":"/s","type":"t"}`,
		"no such time":     "{" + required + `,"time":"2026-13-01T00:00:00Z"}`,
		"no time at all":   "{" + required + `,"time":"noon"}`,
		"no such version":  `{"specversion":"2.0","id":"1","source":"/s","type":"t"}`,
		"no name":          "{" + required + `,"not_a_name":"x"}`,
		"a relative URI":   "{" + required + `,"dataschema":"/relative"}`,
		"no content type":  "{" + required + `,"datacontenttype":"a;b;c"}`,
		"source is no URI": `{"specversion":"1.0","id":"1","source":"%zz","type":"t"}`,
	} {
		var ours message.RawMessage
		err := ours.UnmarshalJSON([]byte(text))
		if err == nil {
			_, err = cloudevents.ToEvent(&ours)
		}
		if !errors.Is(err, message.ErrEncode) && !errors.Is(err, message.ErrDecode) {
			t.Errorf("%s: here: %v", name, err)
		}
		var e event.Event
		err = json.Unmarshal([]byte(text), &e)
		if err == nil {
			_, err = cloudevents.FromEvent(e)
		}
		if err == nil {
			t.Errorf("%s: the SDK takes it", name)
		}
	}
	for name, attrs := range map[string]message.Attributes{
		"a capital letter": {"Name": "x"}, "data": {"data": "x"}, "no UTF-8": {"x": "\xff"}, "a struct": {"x": struct{}{}},
		"a number as id": {"id": 5}, "a number as time": {"time": 5}, "an older version": {"specversion": "0.3"},
		"a blank subject": {"subject": " "}, "a blank content type": {"datacontenttype": "\t"},
	} {
		all := message.Attributes{"id": "1", "source": "/s", "type": "t"}
		maps.Copy(all, attrs)
		if _, err := cloudevents.ToEvent(message.NewRaw(nil, all, nil)); !errors.Is(err, message.ErrEncode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cloudevents.ToEvent(nil); !errors.Is(err, message.ErrEncode) {
		t.Errorf("nil: %v", err)
	}
	for name, e := range map[string]event.Event{"empty": {}, "0.3": event.New("0.3"), "nothing in it": event.New()} {
		if _, err := cloudevents.FromEvent(e); !errors.Is(err, message.ErrDecode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := cloudevents.FromOutbox(luatx.Event{ID: "1", Body: []byte("{")}); err == nil {
		t.Error("a body that is no JSON")
	}
}

func TestAttributeTypesOfOneSideAreConverted(t *testing.T) {
	t.Parallel()
	noon := at("2026-07-01T12:00:00Z")
	e, err := cloudevents.ToEvent(message.NewRaw([]byte("<a/>"), message.Attributes{
		"id": "1", "source": "/ä%20b", "type": "t", "datacontenttype": "text/xml", "large": int64(1) << 40, "float": 1.5, "number": json.Number("7.25"),
		"object": json.RawMessage(`{"a":1}`), "bytes": []byte{0, 255}, "when": noon, "int": 7, "nothing": nil, "blank": "",
	}, nil))
	redistest.Must(t, err)
	want := map[string]string{"large": "1099511627776", "float": "1.5", "number": "7.25", "object": `{"a":1}`, "bytes": "AP8=", "when": "2026-07-01T12:00:00Z"}
	msg := from(t, e)
	for name, text := range want {
		if msg.Attributes[name] != text {
			t.Errorf("%s is %v", name, msg.Attributes[name])
		}
	}
	if msg.Attributes["int"] != int64(7) || msg.Attributes["nothing"] != nil || msg.Source() != "/ä%20b" || !e.DataBase64 {
		t.Errorf("%v", msg.Attributes)
	}
	// The SDK escapes URIs that it reads.
	written, err := json.Marshal(e)
	redistest.Must(t, err)
	if got := from(t, fromSDK(t, written)); got.Source() != "/%C3%A4%20b" {
		t.Errorf("source %q", got.Source())
	}

	e = event.New()
	e.SetID("1")
	e.SetSource("/s")
	e.SetType("t")
	e.SetExtension("correlationid", 5)
	e.SetExtension("expirytime", "2026-07-01T12:00:00Z")
	msg = from(t, e)
	if until, ok := msg.ExpiryTime(); msg.CorrelationID() != "5" || !ok || !until.Equal(noon) {
		t.Errorf("%v", msg.Attributes)
	}
}

func FuzzEventSurvivesARoundTrip(f *testing.F) {
	f.Add("id", "/s", "t", "subject", "name", "value", "text/plain", []byte("data"), int32(3))
	f.Add("1", "urn:a:b", "x", "", "ext", "", "application/json", []byte(`{"a":[1]}`), int32(-1))
	f.Add(" 1", "/s", "t ", " subject ", "name", " value ", "0 ", []byte("0"), int32(0))     // the SDK's setters would trim the blanks
	f.Add("1", "/s", "t", "", "ext", "", "application/json", []byte(`{"&": [0]}`), int32(0)) // JSON escapes & for HTML
	f.Add("ü", "/ä b", "t", "%", "n", "\"", "", []byte{0xff}, int32(0))
	f.Fuzz(func(t *testing.T, id, source, kind, subject, name, value, contentType string, data []byte, n int32) {
		msg := message.NewRaw(data, message.Attributes{
			"specversion": "1.0", "id": id, "source": source, "type": kind, "subject": subject, "datacontenttype": contentType, "number": int64(n),
		}, nil)
		if _, taken := msg.Attributes[name]; !taken && name != "time" && name != "expirytime" && name != "dataschema" {
			msg.Attributes[name] = value
		}
		e, err := cloudevents.ToEvent(msg)
		if err != nil {
			return
		}
		for name, value := range msg.Attributes {
			if value == "" {
				delete(msg.Attributes, name) // CloudEvents attributes have no empty values
			}
		}
		same(t, "directly", from(t, e), msg)
		text, err := json.Marshal(e)
		redistest.Must(t, err)
		var ours message.RawMessage
		redistest.Must(t, ours.UnmarshalJSON(text))
		compact, err := json.Marshal(json.RawMessage(data)) // as the SDK writes JSON
		asJSON := err == nil && bytes.Equal(ours.Data, compact)
		if !asJSON && !bytes.Equal(ours.Data, data) && !bytes.Equal(ours.Data, bytes.TrimSpace(data)) {
			t.Errorf("data %q has become %q", data, ours.Data)
		}
		msg.Data = ours.Data
		same(t, "the SDK's JSON, read here", &ours, msg)
	})
}
