package stream_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func keys(id string) ([]byte, error) {
	if !strings.HasPrefix(id, "k") {
		return nil, fmt.Errorf("no key %q", id)
	}
	return bytes.Repeat([]byte(id[:1]), 32), nil
}

// roundTrip writes messages with some codecs and reads them with others.
func roundTrip(t *testing.T, msg *message.RawMessage, write, read []stream.Codec, marshal func(*message.RawMessage) ([]any, error)) (*message.RawMessage, map[string]any, *subscription) {
	t.Helper()
	f := shared(t)
	send(t, f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs, c.Marshal = write, marshal }), msg)
	entries, err := f.client.XRange(t.Context(), f.key, "-", "+").Result()
	redistest.Must(t, err)
	got, sub := f.first(t, read)
	return got, entries[0].Values, sub
}

// first reads with codecs. It returns the first message, or nil if it became a dead letter.
func (f *fixture) first(t *testing.T, codecs []stream.Codec) (msg *message.RawMessage, sub *subscription) {
	t.Helper()
	cfg := f.config()
	cfg.Codecs, cfg.DeadLetter = codecs, stream.DeadLetterKey(f.key)
	sub = f.subscribe(t, cfg)
	eventually(t, func() bool {
		select {
		case msg = <-sub.ch:
			return true
		default:
			return sub.Stats().DeadLettered > 0
		}
	}, func() string { return "neither a message nor a dead letter" })
	return msg, sub
}

func TestEncodedDataIsDecodedUnchanged(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`{"order":1}`, 100)
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	for name, test := range map[string]struct {
		codecs   []stream.Codec
		data     string
		encoding any // nil for none
	}{
		"gzip":             {[]stream.Codec{stream.Gzip{}}, long, "gzip"},
		"too short":        {[]stream.Codec{stream.Gzip{}}, "{}", nil},
		"does not shrink":  {[]stream.Codec{stream.Gzip{MinBytes: 1}}, "{}", nil},
		"encrypted":        {[]stream.Codec{aes}, "{}", "aesgcm"},
		"nothing to hide":  {[]stream.Codec{aes}, "", "aesgcm"},
		"both":             {[]stream.Codec{stream.Gzip{}, aes}, long, "gzip aesgcm"},
		"both, one of use": {[]stream.Codec{stream.Gzip{}, aes}, "{}", "aesgcm"},
	} {
		for mode, marshal := range map[string]func(*message.RawMessage) ([]any, error){"binary": stream.Binary, "structured": stream.Structured} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				msg := order("1")
				msg.Data = []byte(test.data)
				msg.Attributes[message.AttrDataContentType] = message.ContentTypeJSON
				before := maps.Clone(msg.Attributes)
				got, fields, _ := roundTrip(t, msg, test.codecs, test.codecs, marshal)
				if got == nil {
					t.Fatal("went to the dead letters")
				}
				wantData(t, got, test.data)
				before[message.AttrSpecVersion] = "1.0"
				wantAttributes(t, got.Attributes, before)
				if string(msg.Data) != test.data || msg.Attributes[stream.AttrDataEncoding] != nil {
					t.Errorf("the message was changed: %v %.40q", msg.Attributes, msg.Data)
				}
				if mode == "binary" && !reflect.DeepEqual(fields["ce_dataencoding"], test.encoding) {
					t.Errorf("dataencoding is %v, want %v", fields["ce_dataencoding"], test.encoding)
				}
				if test.encoding != nil && test.data != "" && strings.Contains(fmt.Sprint(fields), test.data) {
					t.Error("the data is in the stream as it was")
				}
			})
		}
	}
}

func TestUndecodableDataBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	other := stream.AESGCM{Key: func(string) ([]byte, error) { return bytes.Repeat([]byte("x"), 32), nil }}
	long := strings.Repeat("x", 5000)
	for name, test := range map[string]struct {
		write, read []stream.Codec
		change      func(*message.RawMessage)
		want        string
	}{
		"unknown codec": {[]stream.Codec{aes}, []stream.Codec{stream.Gzip{}}, nil, "not among SubscriberConfig.Codecs"},
		"another key":   {[]stream.Codec{aes}, []stream.Codec{other}, nil, "authentication failed"},
		"another message's": {[]stream.Codec{aes}, []stream.Codec{aes}, func(m *message.RawMessage) {
			m.Attributes[message.AttrID] = "2"
		}, "authentication failed"},
		"changed":         {[]stream.Codec{aes}, []stream.Codec{aes}, func(m *message.RawMessage) { m.Data[20] ^= 1 }, "authentication failed"},
		"cut":             {[]stream.Codec{aes}, []stream.Codec{aes}, func(m *message.RawMessage) { m.Data = m.Data[:5] }, "codec aesgcm"},
		"a bomb":          {[]stream.Codec{stream.Gzip{}}, []stream.Codec{stream.Gzip{MaxBytes: 4999}}, nil, "more than the 4999 bytes"},
		"no gzip":         {[]stream.Codec{stream.Gzip{}}, []stream.Codec{stream.Gzip{}}, func(m *message.RawMessage) { m.Data = []byte("x") }, "codec gzip"},
		"no key function": {[]stream.Codec{aes}, []stream.Codec{stream.AESGCM{}}, nil, "AESGCM.Key is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := order("1")
			msg.Data = []byte(long)
			marshal := func(m *message.RawMessage) ([]any, error) {
				if test.change != nil {
					test.change(m)
				}
				return stream.Binary(m)
			}
			got, _, sub := roundTrip(t, msg, test.write, test.read, marshal)
			if got != nil {
				t.Fatalf("got %v %.40q", got.Attributes, got.Data)
			}
			if sub.Stats().Malformed != 1 {
				t.Errorf("stats are %+v", sub.Stats())
			}
		})
	}
}

func TestCodecThatCannotEncodeReturnsAPermanentError(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, codec := range map[string]stream.Codec{
		"no key id": stream.AESGCM{Key: keys}, "no key": stream.AESGCM{KeyID: "z", Key: keys},
		"short key": stream.AESGCM{KeyID: "k", Key: func(string) ([]byte, error) { return []byte("x"), nil }},
		"level":     stream.Gzip{Level: 77, MinBytes: 1},
	} {
		errs := f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{codec} }).Send(t.Context(), order("1"))
		if len(errs) != 1 || !errors.Is(errs[0], message.ErrEncode) || !message.IsPermanent(errs[0]) {
			t.Errorf("%s: errors are %v, want a permanent ErrEncode", name, errs)
		}
	}
	if got := f.entries(t); len(got) != 0 {
		t.Errorf("%d entries were written", len(got))
	}
	for _, codecs := range [][]stream.Codec{{nil}, {stream.Gzip{}, stream.Gzip{}}} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		t.Cleanup(func() { client.Close() })
		_, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "s", Codecs: codecs})
		wantFieldError(t, err, "PublisherConfig", "Codecs")
		_, err = stream.NewSubscriber(client, stream.SubscriberConfig{Stream: "s", Group: "g", Codecs: codecs})
		wantFieldError(t, err, "SubscriberConfig", "Codecs")
	}
}

func TestSubscriberWithoutCodecsDeliversEncodedDataUnchanged(t *testing.T) {
	t.Parallel()
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	got, _, _ := roundTrip(t, order("1"), []stream.Codec{aes}, nil, nil)
	if got == nil || got.Attributes[stream.AttrDataEncoding] != "aesgcm" {
		t.Fatalf("got %v, want it as it is", got)
	}
	again, _, _ := roundTrip(t, got, []stream.Codec{stream.Gzip{MinBytes: 1}}, []stream.Codec{aes, stream.Gzip{}}, nil)
	if again == nil {
		t.Fatal("went to the dead letters")
	}
	wantData(t, again, `{"order":1}`)
}

func TestMessageAboveMaxBytesIsAPermanentError(t *testing.T) {
	t.Parallel()
	f := shared(t)
	pub := f.publisher(t, func(c *stream.PublisherConfig) { c.MaxBytes = 500 })
	big := order("big")
	big.Data = bytes.Repeat([]byte("x"), 500)
	errs := pub.Send(t.Context(), order("1"), big, order("2"))
	if len(errs) != 3 || errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], stream.ErrTooLarge) || !message.IsPermanent(errs[1]) {
		t.Errorf("errors are %v, want a permanent ErrTooLarge for the second", errs)
	}
	if got := f.written(t, f.key); fmt.Sprint(got) != "[1 2]" {
		t.Errorf("wrote %q", got)
	}
}

func FuzzGzipDecode(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := stream.Gzip{MaxBytes: 1000}.Decode(data, nil)
		if err == nil && len(out) > 1000 {
			t.Errorf("%d bytes, more than 1000", len(out))
		}
	})
}
