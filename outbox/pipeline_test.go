package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

func entries(t testing.TB, client redis.UniversalClient, key string) []redis.XMessage {
	t.Helper()
	list, err := client.XRange(redistest.Soon(t), key, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEntries holds that the outputs become entries that an outbox subscriber reads back, in their order, in the
// same EXEC as the handler's writes, and that they are not passed on; in either encoding.
func TestEntries(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		t.Run("JSON", func(t *testing.T) { testEntries(t, client, nil) })
		t.Run("MessagePack", func(t *testing.T) { testEntries(t, client, outbox.MessagePack) })
	})
}

func testEntries(t *testing.T, client redis.UniversalClient, marshal func(*message.Message) (map[string]any, error)) {
	t.Helper()
	ctx, tag := redistest.Soon(t), "{"+redistest.Tag(t)+"}"
	at := time.Date(2026, 5, 1, 12, 0, 0, 7, time.UTC)
	out := []*message.Message{
		message.New(nil, message.Attributes{"type": "sold", "source": "/shop", "subject": "a", "time": at}, nil),
		message.New([]byte{0, 0xff}, message.Attributes{"type": "sold", "id": "given", "destination": "elsewhere"}, nil),
		message.New(struct{ Total int }{5}, message.Attributes{"type": "lost", "correlationid": "c"}, nil),
	}
	mw := pipelined(client, outbox.PipelineConfig{
		Stream:      tag + ":out",
		Destination: func(msg *message.Message) (string, error) { return "by-" + msg.Type(), nil },
		MarshalFunc: marshal,
	})
	r := router(t, "bill", func(ctx context.Context) ([]*message.Message, error) {
		return out, luatx.CmdableFromContext(ctx, client).Set(ctx, tag+":k", 1, 0).Err()
	}, mw...)
	if passed, err := r.Process(ctx, order("1")); err != nil || passed != nil {
		t.Fatalf("%d outputs were passed on, error %v", len(passed), err)
	}
	list := entries(t, client, tag+":out")
	if len(list) != 3 || client.Get(ctx, tag+":k").Val() != "1" {
		t.Fatalf("%d entries, the business key is %q", len(list), client.Get(ctx, tag+":k").Val())
	}
	want := []struct{ eventType, data, destination string }{
		{"sold", "", "by-sold"}, {"sold", "\x00\xff", "elsewhere"}, {"lost", `{"Total":5}`, "by-lost"},
	}
	for i, entry := range list {
		msg, err := stream.UnmarshalOutbox(entry.ID, entry.Values)
		if err != nil {
			t.Fatal(err)
		}
		if msg.Type() != want[i].eventType || !bytes.Equal(msg.Data, []byte(want[i].data)) || msg.Destination() != want[i].destination {
			t.Errorf("entry %d: %v, data %q, want %+v", i, msg.Attributes, msg.Data, want[i])
		}
		if marshal == nil && (entry.Values["type"] != want[i].eventType || entry.Values["destination"] != want[i].destination) {
			t.Errorf("entry %d: fields %v", i, entry.Values)
		}
		for name, v := range out[i].Attributes {
			if got := msg.Attributes[name]; got != v {
				t.Errorf("entry %d: attribute %s is %v, want %v", i, name, got, v)
			}
		}
		if given := out[i].ID(); msg.ID() == "" || msg.ID() == entry.ID || given != "" && msg.ID() != given {
			t.Errorf("entry %d: the id is %q", i, msg.ID())
		}
	}
}

// TestMessagePackIsSmaller holds what it is for, and that what it cannot hold is refused by name.
func TestMessagePackIsSmaller(t *testing.T) {
	t.Parallel()
	event := message.New(1, message.Attributes{
		"id": message.NewID(), "type": "sold", "source": "/shop", "subject": "a", "time": time.Now(), "attempt": 3, "specversion": "1.0",
	}, nil)
	sizes := make(map[string]int)
	for name, marshal := range map[string]func(*message.Message) (map[string]any, error){"JSON": outbox.JSON, "MessagePack": outbox.MessagePack} {
		fields, err := marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range fields {
			switch v := value.(type) {
			case string:
				sizes[name] += len(field) + len(v)
			case []byte:
				sizes[name] += len(field) + len(v)
			}
		}
		if msg, err := stream.UnmarshalOutbox("1-0", fields); err != nil || msg.Attributes["attempt"] != int64(3) || msg.ID() != event.ID() {
			t.Errorf("%s: %v, %v", name, msg, err)
		}
	}
	if sizes["MessagePack"]*4 > sizes["JSON"]*3 {
		t.Errorf("sizes %v", sizes)
	}
	odd := message.New(1, message.Attributes{"type": "sold", "odd": []int{1}}, nil)
	if _, err := outbox.MessagePack(odd); !errors.Is(err, message.ErrEncode) || !strings.Contains(err.Error(), `"odd"`) {
		t.Errorf("a list: %v", err)
	}
	if _, err := stream.UnmarshalOutbox("1-0", map[string]any{"attributes": "\x81\xa1"}); !errors.Is(err, message.ErrDecode) {
		t.Errorf("half a map: %v", err)
	}
}

// TestStreamFor holds that the handler's input names the stream, before the handler runs.
func TestStreamFor(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tag := redistest.Soon(t), redistest.Tag(t)
		lost := errors.New("no partition")
		runs := 0
		r := router(t, "bill", func(ctx context.Context) ([]*message.Message, error) {
			runs++
			return outputs(runs)(ctx)
		}, pipelined(client, outbox.PipelineConfig{StreamFor: func(input *message.Message) (string, error) {
			if input.ID() == "3" {
				return "", lost
			}
			return "{" + tag + input.ID() + "}:out", nil
		}})...)
		for _, id := range []string{"1", "2"} {
			if _, err := r.Process(ctx, order(id)); err != nil {
				t.Fatal(err)
			}
			if list := entries(t, client, "{"+tag+id+"}:out"); len(list) != 1 || list[0].Values["data"] != id {
				t.Errorf("stream of message %s: %v", id, list)
			}
		}
		if _, err := r.Process(ctx, order("3")); !errors.Is(err, lost) || runs != 2 {
			t.Errorf("no stream: %v; %d runs", err, runs)
		}
	})
}

// TestMarshalFunc holds that the fields of an entry can be the user's own.
func TestMarshalFunc(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		key, wrong := "{"+redistest.Tag(t)+"}:out", errors.New("wrong")
		r := router(t, "bill", outputs(1, 2), pipelined(client, outbox.PipelineConfig{
			Stream:      key,
			MarshalFunc: func(msg *message.Message) (map[string]any, error) { return map[string]any{"n": msg.Data}, nil },
		})...)
		if _, err := r.Process(redistest.Soon(t), order("1")); err != nil {
			t.Fatal(err)
		}
		list := entries(t, client, key)
		if len(list) != 2 || len(list[1].Values) != 1 || list[1].Values["n"] != "2" {
			t.Errorf("entries %v", list)
		}
		r = router(t, "bill", outputs(1, 2), pipelined(client, outbox.PipelineConfig{
			Stream: key,
			MarshalFunc: func(msg *message.Message) (map[string]any, error) {
				if msg.Data == 2 {
					return nil, wrong
				}
				return map[string]any{"n": msg.Data}, nil
			},
		})...)
		if _, err := r.Process(redistest.Soon(t), order("2")); !errors.Is(err, wrong) || err.Error() != "outbox: output 1: marshal: wrong" {
			t.Errorf("an output that cannot be encoded: %v", err)
		}
		if n := len(entries(t, client, key)); n != 2 {
			t.Errorf("its neighbour was added: %d entries", n)
		}
	})
}

// TestPipelineRefuses holds the errors of a stack or a config that cannot do what it should; the handler does not
// run under them.
func TestPipelineRefuses(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client)
	added := outbox.PipelineMiddleware(outbox.PipelineConfig{Stream: "out"})
	for name, c := range map[string]struct {
		mw   []message.Middleware
		says string
	}{
		"no pipeline":      {[]message.Middleware{added}, "outbox: no pipeline in context (PipelineMiddleware required)"},
		"no stream":        {pipelined(client, outbox.PipelineConfig{}), "outbox: PipelineConfig.Stream is empty: name the stream that takes the events"},
		"inside a script":  {[]message.Middleware{luatx.Middleware(tr), added}, "outbox: PipelineMiddleware inside luatx.Middleware: replace it by outbox.Middleware"},
		"no transaction":   {[]message.Middleware{outbox.Middleware(outbox.Config{})}, "outbox: no transaction in context: put luatx.Middleware before outbox.Middleware"},
		"pipeline instead": {[]message.Middleware{luatx.PipelineMiddleware(client), outbox.Middleware(outbox.Config{})}, "inside luatx.PipelineMiddleware: replace it by outbox.PipelineMiddleware, or PipelineMiddleware by luatx.Middleware"},
	} {
		r := router(t, "bill", func(context.Context) ([]*message.Message, error) {
			t.Errorf("%s: the handler ran", name)
			return nil, nil
		}, c.mw...)
		msg := order(name)
		if _, err := r.Process(redistest.Soon(t), msg); err == nil || !strings.HasSuffix(err.Error(), c.says) || msg.Err() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	failing := errors.New("failing")
	r := router(t, "bill", func(context.Context) ([]*message.Message, error) {
		out, _ := outputs(1)(t.Context())
		return out, failing
	}, pipelined(client, outbox.PipelineConfig{Stream: "out"})...)
	if _, err := r.Process(redistest.Soon(t), order("1")); !errors.Is(err, failing) {
		t.Errorf("error %v", err)
	}
	if client.Exists(redistest.Soon(t), "out").Val() != 0 {
		t.Error("a handler that failed has added its outputs")
	}
}
