package trigger

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var examples = map[string]*Delivery{
	"pubsub-text":     {Channel: "orders", Data: []byte(`{"total":5}`), Time: time.UnixMilli(1770000000123)},
	"pubsub-binary":   {Channel: "orders.eu", Pattern: "orders.*", Data: []byte{0xff, 0x00, 0x01}, Time: time.UnixMilli(1770000000123)},
	"pubsub-empty":    {Channel: "ticks", Time: time.UnixMilli(1770000000000)},
	"stream-data":     {Stream: "orders", ID: "1770000000123-4", Fields: map[string]string{"data": "£5", "type": "order.placed", "note": "<b>"}},
	"stream-binary":   {Stream: "orders", ID: "1770000000123-4", Fields: map[string]string{"data": "\xff\xfe"}},
	"stream-no-data":  {Stream: "orders", ID: "1770000000123-4", Fields: map[string]string{"customer": "7"}},
	"stream-early-id": {Stream: "orders", ID: "0-1", Fields: map[string]string{"data": ""}},
}

func TestPayloadsMatchTheExamplesAndTheSchema(t *testing.T) {
	t.Parallel()
	for name, d := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := d.message()
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, msg.Data, "", "  "); err != nil {
				t.Fatal(err)
			}
			pretty.WriteByte('\n')
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, pretty.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != pretty.String() {
				t.Errorf("got\n%s\nwant\n%s\n%v", pretty.String(), want, err)
			}
			if problem := fits(t, msg.Data); problem != "" {
				t.Errorf("not as the schema says: %s", problem)
			}
			var back Payload
			if err := json.Unmarshal(msg.Data, &back); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(back)
			if err != nil || !bytes.Equal(again, msg.Data) {
				t.Errorf("read back: %s, %v", again, err)
			}
		})
	}
}

func TestPayloadRejectsValuesThatJSONCannotRepresent(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*Delivery{
		"attribute":      {Stream: "s", ID: "1-1", Fields: map[string]string{"a": "\xff"}},
		"attribute name": {Stream: "s", ID: "1-1", Fields: map[string]string{"\xff": "a"}},
		"stream":         {Stream: "\xff", ID: "1-1"},
		"channel":        {Channel: "\xff"},
		"pattern":        {Channel: "c", Pattern: "\xff*"},
		"no channel":     {Pattern: "*"},
		"time":           {Channel: "c", Time: time.UnixMilli(253402300800000)},
		"no time":        {Stream: "s", ID: "18446744073709551615-1"},
		"year 10000":     {Stream: "s", ID: "253402300800000-1"},
	} {
		if msg, err := d.message(); err == nil {
			t.Errorf("%s: %s, want an error", name, msg.Data)
		}
	}
	if _, err := (&Delivery{Stream: "s", ID: "253402300799999-1"}).message(); err != nil {
		t.Errorf("the last time of the year 9999: %v", err)
	}
}

func TestSchemaRejectsOtherDocuments(t *testing.T) {
	t.Parallel()
	const body = `{"base64":""}`
	for name, text := range map[string]string{
		"nothing":          `{}`,
		"no attributes":    `{"channel":"c","payload":` + body + `,"metadata":{"timestamp":"2026-01-01T00:00:00Z"}}`,
		"attributes":       `{"channel":"c","payload":` + body + `,"attributes":{"a":"b"},"metadata":{"timestamp":"2026-01-01T00:00:00Z"}}`,
		"no time":          `{"channel":"c","payload":` + body + `,"attributes":{},"metadata":{}}`,
		"null for message": `{"channel":"c","payload":null,"attributes":{},"metadata":{"timestamp":"2026-01-01T00:00:00Z"}}`,
		"both":             `{"channel":"c","stream":"s","id":"1-1","payload":` + body + `,"attributes":{},"metadata":{"timestamp":"2026-01-01T00:00:00Z"}}`,
		"bad id":           `{"stream":"s","id":"x","payload":null,"attributes":{},"metadata":{"timestamp":"2026-01-01T00:00:00Z","stream_id":"1-1"}}`,
		"bad attribute":    `{"stream":"s","id":"1-1","payload":null,"attributes":{"a":1},"metadata":{"timestamp":"2026-01-01T00:00:00Z","stream_id":"1-1"}}`,
		"bad base64":       `{"stream":"s","id":"1-1","payload":{"base64":"%"},"attributes":{},"metadata":{"timestamp":"2026-01-01T00:00:00Z","stream_id":"1-1"}}`,
		"bad time":         `{"stream":"s","id":"1-1","payload":null,"attributes":{},"metadata":{"timestamp":"yesterday","stream_id":"1-1"}}`,
	} {
		if fits(t, []byte(text)) == "" {
			t.Errorf("%s: the schema takes %s", name, text)
		}
	}
}

func FuzzPayload(f *testing.F) {
	f.Add("s", "1-1", "data", "x", "c", []byte("y"))
	f.Add("", "", "a", "\xff", "", []byte{0xff})
	f.Fuzz(func(t *testing.T, stream, id, field, value, channel string, data []byte) {
		d := &Delivery{Stream: stream, ID: id, Fields: map[string]string{field: value}, Time: time.UnixMilli(1)}
		if stream == "" {
			d = &Delivery{Channel: channel, Data: data, Time: time.UnixMilli(1)}
		} else if !entryID.MatchString(id) || id == "$" || !bytes.ContainsRune([]byte(id), '-') {
			t.Skip("no server gives such an id")
		}
		msg, err := d.message()
		if err != nil {
			return
		}
		if problem := fits(t, msg.Data); problem != "" {
			t.Errorf("%s: %s", problem, msg.Data)
		}
	})
}
