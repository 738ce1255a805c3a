package stream_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
)

// hostile makes entries that no publisher of this package writes.
type hostile struct {
	*rand.Rand
	bomb []byte
}

func newHostile(seed uint64) *hostile {
	return &hostile{rand.New(rand.NewPCG(seed, 20)), packed(packed(make([]byte, 1<<20)))} //nolint:gosec // repeatable
}

func packed(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

func (h *hostile) pick(texts ...string) string { return texts[h.IntN(len(texts))] }

func (h *hostile) bytes() string {
	out := make([]byte, h.IntN(40))
	for i := range out {
		out[i] = byte(h.IntN(256))
	}
	return string(out)
}

func (h *hostile) data() string {
	switch h.IntN(10) {
	case 0:
		return strings.Repeat("[", h.IntN(20_000))
	case 1:
		return string(h.bomb)
	case 2:
		return string(h.bomb[:h.IntN(len(h.bomb))])
	case 3:
		return string(packed([]byte(h.bytes())))
	case 4:
		return h.pick("", "{}", "null", "\x00", `{"specversion":"1.0","id":5}`, `{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"*"}`)
	default:
		return h.bytes()
	}
}

func (h *hostile) value() string {
	switch h.IntN(4) {
	case 0:
		return h.data()
	case 1:
		return h.pick("1.0", "9", "1.", "gzip", "gzip"+strings.Repeat(" gzip", 1), "gzip"+strings.Repeat(" gzip", 2), "aesgcm", "aesgcm gzip", "none", " ", strings.Repeat("gzip ", 1000))
	case 2:
		return h.pick("application/cloudevents+json", "application/cloudevents-batch+json", "application/json; charset=\xff", ";;;", "2026-13-45T99:99:99Z")
	default:
		return h.bytes()
	}
}

func (h *hostile) name() string {
	if h.IntN(3) == 0 {
		return h.bytes()
	}
	return h.pick("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_expirytime", "ce_dataencoding", "ce_datakeyid", "ce_", "ce_ID",
		"content-type", "data", "metadata", "payload", "_watermill_message_uuid", "dead-reason", "dead-packed", "dead-stream", "attributes", "type", "id")
}

// entry returns names and values. The number of fields is mostly small, but sometimes larger than Lua can pass to a
// command.
func (h *hostile) entry(i int) []string {
	n := 1 + h.IntN(8)
	if i%500 == 7 {
		n = 3000 + h.IntN(6000)
	}
	var texts []string
	if h.IntN(2) == 0 {
		texts = append(texts, "ce_specversion", h.pick("1.0", "1.0", "1.0", "0.3", "1.x", "", "2"), "ce_dataencoding",
			h.pick("", "gzip", "gzip"+strings.Repeat(" gzip", 1), "gzip"+strings.Repeat(" gzip", 2), "aesgcm"), "data", h.data())
	}
	for range n {
		texts = append(texts, h.name(), h.value())
	}
	return texts
}

const hostileEntries = 6000

func TestHostileEntriesEndAsMessagesOrDeadLetters(t *testing.T) {
	t.Parallel()
	for name, codecs := range map[string][]stream.Codec{
		"codecs":    {stream.Gzip{MaxBytes: 1 << 19}, stream.AESGCM{Key: keys}},
		"encrypted": {stream.AESGCM{Key: keys, RejectPlaintext: true}},
		"none":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			count := hostileEntries / 3
			h := newHostile(uint64(count))
			for i := range count {
				redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: strconv.Itoa(i+1) + "-1", Values: h.entry(i)}).Err())
			}
			cfg := f.config()
			cfg.Codecs, cfg.MaxDeliveries, cfg.BatchSize, cfg.MaxDecodedBytes = codecs, 2, 50, 4<<20
			sub := f.subscribe(t, cfg)
			var processed atomic.Int64
			done := make(chan struct{})
			go func() {
				defer close(done)
				for msg := range sub.ch {
					if strings.HasSuffix(msg.ID(), "7-1") || len(msg.Attributes) > 1000 {
						msg.Nack(errBusy)
						continue
					}
					_, _ = msg.MarshalJSON()
					processed.Add(1)
					msg.Ack()
				}
			}()
			t.Cleanup(func() { sub.cancel(); <-done })
			eventually(t, func() bool { return processed.Load()+sub.Stats().DeadLettered >= int64(count) }, func() string {
				return fmt.Sprintf("%d processed and %d dead letters of %d", processed.Load(), sub.Stats().DeadLettered, count)
			})
			f.wantPending(t, 0)
			if dead := len(f.dead(t)); int64(dead)+processed.Load() != int64(count) || dead == 0 {
				t.Errorf("%d dead letters, %d processed, want %d in all", dead, processed.Load(), count)
			}
			// The consumer still works.
			before := processed.Load() + sub.Stats().DeadLettered
			f.add(t, "after")
			eventually(t, func() bool { return processed.Load()+sub.Stats().DeadLettered > before }, func() string { return "the consumer is stuck" })
		})
	}
}
