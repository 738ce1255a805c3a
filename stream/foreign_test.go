package stream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

const bindingDoc = "../docs/cloudevents-redis.md"

// octets is a text, {"base64": …} or null.
type octets []byte

func (o *octets) UnmarshalJSON(text []byte) error {
	var plain *string
	if err := json.Unmarshal(text, &plain); err == nil {
		if plain != nil {
			*o = octets(*plain)
		}
		return nil
	}
	var coded struct{ Base64 []byte }
	err := json.Unmarshal(text, &coded)
	*o = coded.Base64
	return err
}

type vector struct {
	Name, Write string
	Refuse      bool
	Fields      [][2]octets
	Attributes  map[string]any
	Data        octets
}

func vectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile(bindingDoc)
	redistest.Must(t, err)
	_, block, _ := strings.Cut(string(text), "```json\n")
	block, _, found := strings.Cut(block, "\n```")
	var all []vector
	if err := json.Unmarshal([]byte(block), &all); err != nil || !found {
		t.Fatalf("%s: the test vectors are no JSON: %v", bindingDoc, err)
	}
	return all
}

func TestEntriesAreThoseOfTheDocumentedVectors(t *testing.T) {
	t.Parallel()
	written := map[string]int{}
	for _, v := range vectors(t) {
		written[v.Write]++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			values := map[string]any{}
			var pairs []string
			for _, field := range v.Fields {
				values[string(field[0])] = string(field[1])
				pairs = append(pairs, string(field[0])+"="+string(field[1]))
			}
			msg, err := stream.Unmarshal("1700000000000-0", values)
			if v.Refuse {
				if !errors.Is(err, message.ErrDecode) {
					t.Errorf("error is %v, want ErrDecode", err)
				}
				return
			}
			redistest.Must(t, err)
			if at, ok := v.Attributes["time"].(string); ok {
				v.Attributes["time"], err = time.Parse(time.RFC3339Nano, at)
				redistest.Must(t, err)
			}
			wantAttributes(t, msg.Attributes, v.Attributes)
			if !reflect.DeepEqual(msg.Data, []byte(v.Data)) {
				t.Errorf("data is %#v, want %#v", msg.Data, v.Data)
			}
			marshal := map[string]func(*message.RawMessage) ([]any, error){"binary": stream.Binary, "structured": stream.Structured}[v.Write]
			if marshal == nil {
				return
			}
			fields, err := marshal(message.NewRaw(v.Data, v.Attributes, nil))
			redistest.Must(t, err)
			var got []string
			for i := 0; i < len(fields); i += 2 {
				got = append(got, fmt.Sprintf("%s=%s", fields[i], fields[i+1]))
			}
			slices.Sort(pairs)
			slices.Sort(got)
			if !slices.Equal(got, pairs) {
				t.Errorf("wrote %q\nwant  %q", got, pairs)
			}
		})
	}
	if written["binary"] < 3 || written["structured"] < 2 || written[""] < 10 {
		t.Errorf("there are %v vectors", written)
	}
}

func TestUnmarshalDaprReadsDataAndMetadata(t *testing.T) {
	t.Parallel()
	msg, err := stream.UnmarshalDapr("1-0", map[string]any{"data": `{"specversion":"1.0","id":"7","type":"t","data":"x"}`})
	redistest.Must(t, err)
	wantAttributes(t, msg.Attributes, message.Attributes{"specversion": "1.0", "id": "7", "type": "t"})
	msg, err = stream.UnmarshalDapr("1-0", map[string]any{"data": `{"specversion":5}`, "metadata": ""})
	redistest.Must(t, err)
	wantAttributes(t, msg.Attributes, message.Attributes{"specversion": "1.0", "id": "1-0"})
	wantData(t, msg, `{"specversion":5}`)
	msg, err = stream.UnmarshalDapr("1-0", map[string]any{"data": `{"a":1}`})
	redistest.Must(t, err)
	wantData(t, msg, `{"a":1}`)
	for _, values := range []map[string]any{
		{"data": "x", "metadata": "no JSON"}, {"data": "x", "metadata": "x"}, {"data": "x", "metadata": `{"a":5}`}, {"data": `{"specversion":"1.0","id":5}`},
	} {
		if _, err := stream.UnmarshalDapr("1-0", values); !errors.Is(err, message.ErrDecode) {
			t.Errorf("%v: error is %v, want ErrDecode", values, err)
		}
	}
}

func TestUnmarshalWatermillReadsMessagePackMetadata(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for metadata, want := range map[string]message.Attributes{
		"\x80":                                  {},
		"\x81\xa1a\xa2bc":                       {"a": "bc"},
		"\x81\xa1a\xc4\x01b":                    {"a": "b"},
		"\x81\xa1a\xda\x01\x2c" + long:          {"a": long},
		"\xde\x00\x01\xa4Type\xa1t":             {"type": "t"},
		"\x82\xa4name\xa1n\xa4type\xa1t":        {"type": "t", "name": "n"},
		"\xdf\x00\x00\x00\x01\xa4name\xd9\x01n": {"type": "n", "name": "n"},
	} {
		msg, err := stream.UnmarshalWatermill("1-0", map[string]any{"_watermill_message_uuid": "7", "metadata": metadata, "payload": "x"})
		redistest.Must(t, err)
		want["id"], want["specversion"] = "7", "1.0"
		wantAttributes(t, msg.Attributes, want)
		wantData(t, msg, "x")
	}
	for _, metadata := range []string{"\x81\xa1a\x05", "\x81\xa1a\xa5b", "\x80\x80", "\x91\xa1a", "\xdf\xff\xff\xff\xff"} {
		if _, err := stream.UnmarshalWatermill("1-0", map[string]any{"metadata": metadata}); !errors.Is(err, message.ErrDecode) {
			t.Errorf("metadata %q: error is %v, want ErrDecode", metadata, err)
		}
	}
}

func TestMetadataNamesBecomeAttributeNames(t *testing.T) {
	t.Parallel()
	msg, err := stream.UnmarshalDapr("1-0", map[string]any{"data": "x", "metadata": `{"a_b":"changed","ab":"exact","A-C":"1","a.c":"2","---":"x","da-ta":"x","time":"noon","id":"7","azAZ09":"ends","b` + "`{@[/:" + `":"beyond"}`})
	redistest.Must(t, err)
	wantAttributes(t, msg.Attributes, message.Attributes{"specversion": "1.0", "id": "7", "ab": "exact", "ac": "1", "azaz09": "ends", "b": "beyond"})
}
