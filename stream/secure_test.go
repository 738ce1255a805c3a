package stream_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// reasonOf reads entries with codecs. It returns the reason of the first dead letter, or the message.
func (f *fixture) reasonOf(t *testing.T, codecs ...stream.Codec) (reason string, msg *message.RawMessage) {
	t.Helper()
	msg, _ = f.first(t, codecs)
	for _, dead := range f.dead(t) {
		reason = dead.Reason
	}
	return reason, msg
}

func TestAESGCMBindsTheRoutingAttributes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 8, 0, 0, 120, time.FixedZone("", 3600))
	whole := message.Attributes{
		message.AttrSource: "/shop", message.AttrType: "order.placed", message.AttrSubject: "7", message.AttrTime: at,
		message.AttrExpiryTime: at.Add(time.Hour), message.AttrPartitionKey: "p", message.AttrDestination: "orders",
		message.AttrDataContentType: "text/plain", message.AttrDataSchema: "/schema",
	}
	aes := stream.AESGCM{KeyID: "k1", Key: keys}
	codecs := []stream.Codec{stream.Gzip{}, aes}
	fieldOf := map[string]string{"": "", message.AttrDataContentType: "content-type"}
	for _, name := range []string{
		"", message.AttrID, message.AttrSource, message.AttrType, message.AttrSubject, message.AttrTime, message.AttrExpiryTime,
		message.AttrPartitionKey, message.AttrDestination, message.AttrDataContentType, message.AttrDataSchema, stream.AttrDataEncoding,
	} {
		for _, removed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				msg := message.NewRaw([]byte(strings.Repeat("secret ", 100)), maps.Clone(whole), nil)
				msg.Attributes[message.AttrID] = "1"
				pub := f.publisher(t, func(c *stream.PublisherConfig) {
					c.Codecs = codecs
					c.Marshal = func(m *message.RawMessage) ([]any, error) {
						pairs, err := stream.Binary(m)
						field, ok := fieldOf[name]
						if !ok {
							field = "ce_" + name
						}
						for i := 0; i < len(pairs); i += 2 {
							switch {
							case pairs[i] != field:
							case removed && name != stream.AttrDataEncoding:
								return append(pairs[:i], pairs[i+2:]...), err
							case name == message.AttrTime || name == message.AttrExpiryTime:
								pairs[i+1] = "2020-01-01T00:00:00Z"
							case name == stream.AttrDataEncoding:
								pairs[i+1] = "aesgcm" // the compressed data would be taken for the message's
							default:
								pairs[i+1] = "changed"
							}
						}
						return pairs, err
					}
				})
				send(t, pub, msg)
				reason, got := f.reasonOf(t, codecs...)
				if name == "" && (got == nil || string(got.Data) != string(msg.Data)) {
					t.Errorf("unchanged: %v, dead letter %q", got, reason)
				}
				if name != "" && (got != nil || !strings.Contains(reason, "authentication failed")) {
					t.Errorf("%s changed: message %v, dead letter %q, want that authentication failed", name, got, reason)
				}
			})
		}
	}
}

func TestAESGCMRejectsPlaintext(t *testing.T) {
	t.Parallel()
	strict := stream.AESGCM{KeyID: "k1", Key: keys, RejectPlaintext: true}
	for name, test := range map[string]struct {
		data   []byte
		write  []stream.Codec
		strict bool
		want   bool // it arrives
	}{
		"plain":                      {[]byte("{}"), nil, true, false},
		"plain and empty":            {[]byte(""), nil, true, false},
		"plain and no data":          {nil, nil, true, false},
		"only compressed":            {[]byte(strings.Repeat("x", 1000)), []stream.Codec{stream.Gzip{}}, true, false},
		"encrypted":                  {[]byte("{}"), []stream.Codec{stream.Gzip{}, strict}, true, true},
		"no data, encrypted":         {nil, []stream.Codec{stream.Gzip{}, strict}, true, true},
		"plain, and that is allowed": {[]byte("{}"), nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			msg := order("1")
			msg.Data = test.data
			send(t, f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = test.write }), msg)
			read := strict
			read.RejectPlaintext = test.strict
			reason, got := f.reasonOf(t, stream.Gzip{}, &read)
			if (got != nil) != test.want || got != nil && string(got.Data) != string(test.data) || got == nil && !strings.Contains(reason, "is required") {
				t.Errorf("message %v, dead letter %q", got, reason)
			}
		})
	}
}

func TestChainsOfMoreThanTwoEncodingsAreRejected(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("x", 4000))
	for range 3 {
		var err error
		data, err = stream.Gzip{MinBytes: 1, Level: 0}.Encode(data, nil)
		if err != nil {
			break
		}
	}
	f := shared(t)
	redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: []any{
		"ce_specversion", "1.0", "ce_id", "1", "ce_dataencoding", "gzip" + strings.Repeat(" gzip", 2), "data", data,
	}}).Err())
	if reason, got := f.reasonOf(t, stream.Gzip{}); got != nil || !strings.Contains(reason, "through 3 codecs, 2 are allowed") {
		t.Errorf("message %v, dead letter %q", got, reason)
	}
	msg := order("1")
	msg.Data, msg.Attributes[stream.AttrDataEncoding] = []byte(strings.Repeat("x", 1000)), "a b"
	pub := f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{stream.Gzip{}} })
	if errs := pub.Send(t.Context(), msg); errs == nil || !message.IsPermanent(errs[0]) {
		t.Errorf("a third encoding is written: %v", errs)
	}
	_, err := stream.NewPublisher(f.client, stream.PublisherConfig{Stream: "s", Codecs: []stream.Codec{stream.Gzip{}, stream.AESGCM{}, &lower{}}})
	wantFieldError(t, err, "PublisherConfig", "Codecs")
}

type lower struct{ stream.Gzip }

func (*lower) Name() string { return "lower" }

func TestDecodedBytesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	const each, n = 100_000, 30
	f := shared(t)
	pub := f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{stream.Gzip{}} })
	for range n {
		msg := message.NewRaw([]byte(strings.Repeat("x", each)), message.Attributes{message.AttrType: "t"}, nil)
		send(t, pub, msg)
	}
	cfg := f.config()
	cfg.Codecs, cfg.BatchSize, cfg.MaxInFlight, cfg.MaxDecodedBytes, cfg.MaxDeliveries = []stream.Codec{stream.Gzip{}}, n, n, 3*each+1, 2
	sub := f.subscribe(t, cfg)
	f.wantPending(t, n) // all are read
	seen := map[string]bool{}
	for len(seen) < n {
		msg := sub.next(t)
		if waiting := len(sub.ch); waiting > 2 {
			t.Fatalf("%d more messages of %d bytes are in flight, want 2", waiting, each)
		}
		if !seen[msg.ID()] && len(seen)%5 == 0 {
			seen[msg.ID()] = true
			msg.Nack(errBusy) // the wait cost it no delivery
			continue
		}
		seen[msg.ID()] = true
		msg.Ack()
	}
	go func() {
		for msg := range sub.ch {
			msg.Ack()
		}
	}()
	f.wantPending(t, 0)
	if dead := sub.Stats().DeadLettered; dead > 0 {
		t.Errorf("%d went to the dead letters", dead)
	}
}

func TestWaitForDecodedBytesCostsNoDeliveryAtTheNextConsumer(t *testing.T) {
	t.Parallel()
	const each = 100_000
	f, codec := shared(t), &countingCodec{}
	pub := f.publisher(t, func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{codec} })
	for range 2 {
		send(t, pub, message.NewRaw([]byte(strings.Repeat("x", each)), message.Attributes{message.AttrType: "t"}, nil))
	}
	cfg := f.config()
	cfg.Codecs, cfg.MaxDecodedBytes, cfg.MaxDeliveries = []stream.Codec{codec}, each, 3
	first := f.subscribe(t, cfg)
	first.next(t)
	eventually(t, func() bool { return codec.decoded.Load() > 6 }, func() string { return "the second message does not wait" })
	first.stop()
	cfg.MaxDecodedBytes, cfg.MaxIdleTime = 0, 100*time.Millisecond
	second := f.subscribe(t, cfg)
	eventually(t, func() bool { s := second.Stats(); return s.Delivered == 2 || s.DeadLettered > 0 }, func() string { return "not delivered" })
	if n := second.Stats().DeadLettered; n > 0 {
		t.Errorf("%d messages that no handler has seen went to the dead letters", n)
	}
}

func TestPartitionBoundsDecodedBytesOfARun(t *testing.T) {
	t.Parallel()
	const each, n = 100_000, 12
	f := shared(t)
	p := newParted(t, f.client, 1)
	codec := &countingCodec{}
	pub, err := stream.NewPartitionedPublisher(f.client, p.keyspace, stream.PublisherConfig{Stream: "orders", Codecs: []stream.Codec{codec}})
	redistest.Must(t, err)
	for i := range n {
		msg := numbered("a"+string(rune('a'+i)), 0)
		msg.Data = []byte(strings.Repeat("0", each))
		send(t, pub, msg)
	}
	var first sync.Once
	var handled atomic.Int64
	cfg := p.config()
	cfg.Codecs, cfg.MaxDecodedBytes, cfg.MaxDeliveries = []stream.Codec{codec}, 3*each, 1
	m := p.consume(t, f.client, cfg, func(context.Context, string) error {
		first.Do(func() { // the first run is open, and no other run yet
			if got := codec.decoded.Load(); got < 3 || got > 4 { // decoding the fourth shows that it exceeds the bound
				t.Errorf("%d messages are decoded for a run, want 3, and one that is put off", got)
			}
		})
		handled.Add(1)
		return nil
	})
	eventually(t, func() bool { return p.open(t.Context()) == 0 }, func() string { return "not all acknowledged" })
	if dead := m.Stats().DeadLettered; dead > 0 || handled.Load() != n {
		t.Errorf("%d handled, %d went to the dead letters", handled.Load(), dead)
	}
}

// countingCodec compresses, and counts the messages that it decodes.
type countingCodec struct {
	stream.Gzip

	decoded atomic.Int64
}

func (c *countingCodec) Decode(data []byte, attrs message.Attributes) ([]byte, error) {
	c.decoded.Add(1)
	return c.Gzip.Decode(data, attrs)
}

func TestAESGCMBindsAttributesInTheFormInWhichTheyAreRead(t *testing.T) {
	t.Parallel()
	aes := []stream.Codec{stream.AESGCM{KeyID: "k1", Key: keys}}
	for name, marshal := range map[string]func(*message.RawMessage) ([]any, error){"binary": stream.Binary, "structured": stream.Structured} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := order("1")
			if name == "binary" {
				msg.Attributes[message.AttrSubject] = []byte("bytes") // read as text
			}
			msg.Attributes[message.AttrTime] = "2026-11-22T09:00:00.120+01:00"
			msg.Attributes[message.AttrExpiryTime] = time.Date(2026, 11, 22, 9, 0, 0, 0, time.FixedZone("", 3600))
			got, _, _ := roundTrip(t, msg, aes, aes, marshal)
			if got == nil {
				t.Fatal("went to the dead letters")
			}
			wantData(t, got, `{"order":1}`)
		})
	}
}
