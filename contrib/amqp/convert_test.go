package amqp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/luatx/luatx/message"
)

// deliver returns the delivery of a published message.
func deliver(p amqp091.Publishing) *amqp091.Delivery {
	return &amqp091.Delivery{
		Headers: p.Headers, ContentType: p.ContentType, CorrelationId: p.CorrelationId, MessageId: p.MessageId, Timestamp: p.Timestamp,
		Type: p.Type, Body: p.Body,
	}
}

func TestPublishingSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 0, 0, 5, time.FixedZone("", 7200))
	event := message.NewRaw([]byte{0, 0xff}, message.Attributes{
		"specversion": "1.0", "id": strings.Repeat("i", 300), "source": "/ä b", "type": "t", "subject": "grün 100%", "time": at,
		"flag": true, "small": int64(-5), "large": int64(1) << 40, "number": json.Number("1.5"), "nothing": nil, "datacontenttype": "text/plain",
	}, nil)
	for _, prefix := range []string{PrefixUnderscore, PrefixColon, PrefixKnative} {
		p, err := publishing(event, false, prefix)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Unmarshal(deliver(p))
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(event.Attributes)
		delete(want, "nothing")
		want["large"], want["number"] = "1099511627776", "1.5" // wider than the integers of CloudEvents
		if when, _ := got.Time(); !when.Equal(at) {
			t.Errorf("time %v", when)
		}
		want["time"] = got.Attributes["time"]
		if !reflect.DeepEqual(got.Attributes, want) || string(got.Data) != string(event.Data) {
			t.Errorf("%s: %v, want %v", prefix, got.Attributes, want)
		}
	}
	p, err := publishing(event, true, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Unmarshal(deliver(p))
	if err != nil || got.ID() != event.ID() || string(got.Data) != string(event.Data) || got.Attributes["small"] != int64(-5) {
		t.Errorf("structured: %v, %v", got, err)
	}
}

func TestUnmarshalConvertsDeliveriesOfOtherSenders(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		d    amqp091.Delivery
		want message.Attributes // nil: rejected
		data string
	}{
		"binary of others": {
			d: amqp091.Delivery{ContentType: "application/json", Body: []byte("{}"), Headers: amqp091.Table{
				"cloudEvents:specversion": "1.0", "cloudEvents:id": "1", "cloudEvents:source": "/s", "cloudEvents:time": noon, "cloudEvents:n": int32(7),
				"cloudEvents:bytes": []byte{1}, "cloudEvents:at": noon, "x-death": []any{}, "cloudEvents_id": "other",
			}},
			want: message.Attributes{"specversion": "1.0", "id": "1", "source": "/s", "time": noon, "n": int64(7), "bytes": "AQ==", "at": "2026-07-01T12:00:00Z", "datacontenttype": "application/json"},
			data: "{}",
		},
		"the message id": {
			d:    amqp091.Delivery{MessageId: "m", Headers: amqp091.Table{"ce-specversion": "1.0", "ce-source": "/s"}},
			want: message.Attributes{"specversion": "1.0", "id": "m", "source": "/s"},
		},
		"an id that is a number": {
			d:    amqp091.Delivery{Headers: amqp091.Table{"ce-specversion": "1.0", "ce-id": int32(5)}},
			want: message.Attributes{"specversion": "1.0", "id": "5"},
		},
		"structured": {
			d:    amqp091.Delivery{ContentType: "application/cloudevents+json; charset=utf-8", Body: []byte(`{"specversion":"1.0","id":"1","data":5}`)},
			want: message.Attributes{"specversion": "1.0", "id": "1"}, data: "5",
		},
		"plain": {
			d: amqp091.Delivery{
				MessageId: "m", RoutingKey: "order.placed", Timestamp: noon, CorrelationId: "c", ContentType: "text/plain", Body: []byte("x"),
				Headers: amqp091.Table{"subject": "s", "X-Y": "no", "time": "noon", "specversion": "0.3"},
			},
			want: message.Attributes{"specversion": "1.0", "id": "m", "type": "order.placed", "time": noon, "correlationid": "c", "datacontenttype": "text/plain", "subject": "s"},
			data: "x",
		},
		"nothing":         {d: amqp091.Delivery{}, want: message.Attributes{"specversion": "1.0"}},
		"another version": {d: amqp091.Delivery{Headers: amqp091.Table{"ce-specversion": "2.0"}}},
		"another format":  {d: amqp091.Delivery{ContentType: "application/cloudevents+avro"}},
		"no JSON":         {d: amqp091.Delivery{ContentType: "application/cloudevents+json", Body: []byte("{")}},
		"no time":         {d: amqp091.Delivery{Headers: amqp091.Table{"ce-specversion": "1.0", "ce-time": "noon"}}},
		"a list":          {d: amqp091.Delivery{Headers: amqp091.Table{"ce-specversion": "1.0", "ce-x": []any{"a"}}}},
		"no UTF-8":        {d: amqp091.Delivery{Headers: amqp091.Table{"ce-specversion": "1.0", "ce-x": "\xff"}}},
	} {
		got, err := Unmarshal(&test.d)
		switch {
		case test.want == nil:
			if !errors.Is(err, message.ErrDecode) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !reflect.DeepEqual(got.Attributes, test.want) || string(got.Data) != test.data:
			t.Errorf("%s: %v %q, want %v %q", name, got.Attributes, got.Data, test.want, test.data)
		}
	}
}

func TestMarshalRejectsAttributesThatDoNotFitAHeader(t *testing.T) {
	t.Parallel()
	for name, attrs := range map[string]message.Attributes{
		"no UTF-8": {"x": "\xff"}, "no time": {"time": "noon"}, "a time of another type": {"time": 5}, "a struct": {"x": struct{}{}},
		"a long name": {strings.Repeat("n", 250): "x"}, "no name": {"": "x"}, "a long content type": {"datacontenttype": strings.Repeat("t", 256)},
	} {
		if p, err := publishing(message.NewRaw(nil, attrs, nil), false, PrefixUnderscore); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func FuzzMessageSurvivesARoundTrip(f *testing.F) {
	f.Add("id", "/s", "subject", "name", "value", []byte("data"), int64(3), true)
	f.Fuzz(func(t *testing.T, id, source, subject, name, value string, data []byte, n int64, truth bool) {
		event := message.NewRaw(data, message.Attributes{"id": id, "source": source, "type": "t", "subject": subject, "number": n, "truth": truth}, nil)
		if isName(name) && !texts[name] && !isTime(name) && name != message.AttrDataContentType {
			event.Attributes[name] = value
		}
		p, err := publishing(event, false, PrefixUnderscore)
		if err != nil || checkPublishing(&p) != nil {
			return
		}
		got, err := Unmarshal(deliver(p))
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Data) != string(event.Data) || got.ID() != id || got.Source() != source {
			t.Fatalf("%v %q", got.Attributes, got.Data)
		}
		for name, value := range event.Attributes {
			if fmt.Sprint(got.Attributes[name]) != fmt.Sprint(value) {
				t.Fatalf("%s: %v has arrived as %v", name, value, got.Attributes[name])
			}
		}
	})
}
