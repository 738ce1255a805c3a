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
		"none of use":      {[]stream.Codec{called{name: "a-b_C9"}}, "{}", nil},
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
		"no such key":     {[]stream.Codec{aes}, []stream.Codec{stream.AESGCM{Key: func(string) ([]byte, error) { return nil, errBusy }}}, nil, `key "k1": busy`},
		"a short key":     {[]stream.Codec{aes}, []stream.Codec{stream.AESGCM{Key: func(string) ([]byte, error) { return []byte("x"), nil }}}, nil, `key "k1": crypto/aes`},
		"a panic":         {[]stream.Codec{marked{}}, []stream.Codec{panics{}}, nil, "marked cannot decode"},
		"a cut gzip":      {[]stream.Codec{stream.Gzip{}}, []stream.Codec{stream.Gzip{}}, func(m *message.RawMessage) { m.Data = m.Data[:len(m.Data)-5] }, "codec gzip: unexpected EOF"},
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
			f := shared(t)
			send(t, f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs, c.Marshal = test.write, marshal }), msg)
			got, sub := f.first(t, test.read)
			if got != nil {
				t.Fatalf("got %v %.40q", got.Attributes, got.Data)
			}
			if dead := f.dead(t); sub.Stats().Malformed != 1 || len(dead) != 1 || !strings.Contains(dead[0].Reason, test.want) {
				t.Errorf("stats are %+v, dead letters %+v, want one because of %q", sub.Stats(), dead, test.want)
			}
		})
	}
}

func TestCodecThatCannotEncodeReturnsAPermanentError(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for want, codec := range map[string]stream.Codec{
		"AESGCM.KeyID is empty": stream.AESGCM{Key: keys}, `key "z": no key "z"`: stream.AESGCM{KeyID: "z", Key: keys},
		`key "k": crypto/aes`: stream.AESGCM{KeyID: "k", Key: func(string) ([]byte, error) { return []byte("x"), nil }},
		"Gzip.Level":          stream.Gzip{Level: 77, MinBytes: 1},
	} {
		errs := f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{codec} }).Send(t.Context(), order("1"))
		if len(errs) != 1 || !errors.Is(errs[0], message.ErrEncode) || !message.IsPermanent(errs[0]) || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("errors are %v, want a permanent ErrEncode because of %s", errs, want)
		}
	}
	if got := f.entries(t); len(got) != 0 {
		t.Errorf("%d entries were written", len(got))
	}
	for _, codecs := range [][]stream.Codec{{nil}, {stream.Gzip{}, stream.Gzip{}}, {called{name: ""}}, {called{name: "a b"}}, {called{name: "ä"}}} {
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

func TestGzipCompressesFromMinBytesAndDecompressesUpToMaxBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		codec  stream.Gzip
		size   int
		skips  bool
		refuse bool
	}{
		"below the default":   {stream.Gzip{}, 255, true, false},
		"the default":         {stream.Gzip{}, 256, false, false},
		"below MinBytes":      {stream.Gzip{MinBytes: 300}, 299, true, false},
		"MinBytes":            {stream.Gzip{MinBytes: 300}, 300, false, false},
		"MaxBytes":            {stream.Gzip{MaxBytes: 300}, 300, false, false},
		"a byte too much":     {stream.Gzip{MaxBytes: 300}, 301, false, true},
		"beyond both of them": {stream.Gzip{MinBytes: 300, MaxBytes: 299}, 300, false, true},
	} {
		data := bytes.Repeat([]byte("x"), c.size)
		packed, err := c.codec.Encode(data, nil)
		if errors.Is(err, stream.ErrSkipCodec) != c.skips || err != nil && !c.skips {
			t.Errorf("%s: error is %v, want to skip: %t", name, err, c.skips)
		}
		if c.skips || err != nil {
			continue
		}
		if got, err := c.codec.Decode(packed, nil); (err != nil) != c.refuse || !c.refuse && !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, error %v", name, len(got), err)
		}
	}
}

// marked is a Codec that changes all data.
type marked struct{}

func (marked) Name() string { return "marked" }

// panics is a marked that cannot decode.
type panics struct{ marked }

func (panics) Decode([]byte, message.Attributes) ([]byte, error) { panic("marked cannot decode") }

// called is a codec that skips all data.
type called struct {
	marked

	name string
}

func (c called) Name() string { return c.name }

func (called) Encode([]byte, message.Attributes) ([]byte, error) {
	return nil, fmt.Errorf("not worth it: %w", stream.ErrSkipCodec)
}

func (marked) Encode(data []byte, _ message.Attributes) ([]byte, error) {
	return append([]byte("marked "), data...), nil
}

func (marked) Decode(data []byte, _ message.Attributes) ([]byte, error) {
	return bytes.TrimPrefix(data, []byte("marked ")), nil
}

func TestCodecsSkipMessagesWithoutData(t *testing.T) {
	t.Parallel()
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	strict := aes
	strict.RejectPlaintext = true
	for name, c := range map[string]struct {
		codecs   []stream.Codec
		encoding any
	}{
		"all":                       {[]stream.Codec{marked{}, aes}, nil},
		"all but the required one":  {[]stream.Codec{marked{}, strict}, "aesgcm"},
		"none behind the encrypted": {[]stream.Codec{strict, marked{}}, "aesgcm marked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := order("1")
			msg.Data = nil
			got, fields, _ := roundTrip(t, msg, c.codecs, c.codecs, nil)
			if got == nil || len(got.Data) > 0 || fields["ce_dataencoding"] != c.encoding {
				t.Errorf("message %v, fields %v, want the encoding %v", got, fields, c.encoding)
			}
		})
	}
}

func TestMaxBytesBoundsTheNamesAndValuesOfFieldsTogether(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for size, entry := range map[int][]any{10: {"four", []byte("4444"), "n", "1"}, 20: {"n", 1, "yes", true}} { // a number counts as 8 bytes
		for _, fits := range []bool{true, false} {
			pub := f.publisher(t, func(c *stream.PublisherConfig) {
				if c.MaxBytes = size; !fits {
					c.MaxBytes--
				}
				c.Marshal = func(*message.RawMessage) ([]any, error) { return entry, nil }
			})
			if errs := pub.Send(t.Context(), order("1")); (errs == nil) != fits || !fits && !errors.Is(errs[0], stream.ErrTooLarge) {
				t.Errorf("%v within %d bytes, fits %t: errors are %v", entry, size, fits, errs)
			}
		}
	}
}

func TestGzipSkipsDataThatItDoesNotMakeShorter(t *testing.T) {
	t.Parallel()
	same := 0
	for n := range 100 {
		data := bytes.Repeat([]byte("x"), n+1)
		out, err := stream.Gzip{MinBytes: 1}.Encode(data, nil)
		if skips, small := errors.Is(err, stream.ErrSkipCodec), len(packed(data)); skips != (small >= len(data)) {
			t.Errorf("%d bytes, packed in %d: packed %d, %v", len(data), small, len(out), err)
		} else if small == len(data) {
			same++
		}
	}
	if same == 0 {
		t.Error("no data is as long as it is packed")
	}
}

func TestEncryptedMessageWithoutDataIsDecodedToEmptyData(t *testing.T) {
	t.Parallel()
	aes := stream.AESGCM{KeyID: "k1", Key: keys, RejectPlaintext: true}
	attrs := message.Attributes{}
	sealed, err := aes.Encode(nil, attrs)
	redistest.Must(t, err)
	if data, err := aes.Decode(sealed, attrs); err != nil || data == nil || len(data) > 0 {
		t.Errorf("%#v, %v, want empty data", data, err)
	}
}

func TestTextThatLooksLikeATimeIsBoundAsItIs(t *testing.T) {
	t.Parallel()
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	attrs := message.Attributes{message.AttrSubject: "2026-11-22T09:00:00+01:00"}
	sealed, err := aes.Encode([]byte("x"), attrs)
	redistest.Must(t, err)
	attrs[message.AttrSubject] = "2026-11-22T08:00:00Z"
	if data, err := aes.Decode(sealed, attrs); err == nil {
		t.Errorf("decoded %q under another subject", data)
	}
}
