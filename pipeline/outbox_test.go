package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
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

func TestOutputsBecomeEntriesInOrderInTheHandlersExec(t *testing.T) {
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
	mw := pipelined(client, pipeline.OutboxConfig{
		Stream:      tag + ":out",
		Destination: func(msg *message.Message) (string, error) { return "by-" + msg.Type(), nil },
		MarshalFunc: marshal,
	})
	r := emitting(t, func(ctx context.Context) ([]*message.Message, error) {
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

func TestOutboxStreamIsChosenByTheInputBeforeTheHandlerRuns(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tag := redistest.Soon(t), redistest.Tag(t)
		lost := errors.New("no partition")
		runs := 0
		r := emitting(t, func(ctx context.Context) ([]*message.Message, error) {
			runs++
			return outputs(runs)(ctx)
		}, pipelined(client, pipeline.OutboxConfig{StreamFor: func(input *message.Message) (string, error) {
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

func TestMarshalFuncReturnsTheFieldsOfAnEntry(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		key, wrong := "{"+redistest.Tag(t)+"}:out", errors.New("wrong")
		r := emitting(t, outputs(1, 2), pipelined(client, pipeline.OutboxConfig{
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
		r = emitting(t, outputs(1, 2), pipelined(client, pipeline.OutboxConfig{
			Stream: key,
			MarshalFunc: func(msg *message.Message) (map[string]any, error) {
				if msg.Data == 2 {
					return nil, wrong
				}
				return map[string]any{"n": msg.Data}, nil
			},
		})...)
		if _, err := r.Process(redistest.Soon(t), order("2")); !errors.Is(err, wrong) || err.Error() != "pipeline: output 1: marshal: wrong" {
			t.Errorf("an output that cannot be encoded: %v", err)
		}
		r = emitting(t, outputs(1, 2), pipelined(client, pipeline.OutboxConfig{
			Stream: key,
			Destination: func(msg *message.Message) (string, error) {
				if msg.Data == 2 {
					return "", wrong
				}
				return "shop", nil
			},
		})...)
		if _, err := r.Process(redistest.Soon(t), order("3")); !errors.Is(err, wrong) || err.Error() != "pipeline: output 1: destination: wrong" {
			t.Errorf("an output without a destination: %v", err)
		}
		if n := len(entries(t, client, key)); n != 2 {
			t.Errorf("its neighbour was added: %d entries", n)
		}
	})
}

// unencodable is a Marshaler that encodes nothing.
type unencodable struct{ message.JSONMarshaler }

func (unencodable) Marshal(any) ([]byte, error) { return nil, errHandler }

func TestNothingIsWrittenIfAnOutputCannotBeEncodedByTheEngine(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	engine := message.NewEngine(message.EngineConfig{Marshaler: unencodable{}})
	redistest.Must(t, engine.Router().Use(message.Chain(pipelined(client, pipeline.OutboxConfig{Stream: "out"})...)))
	redistest.Must(t, engine.AddHandler("orders", nil, message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		luatx.CmdableFromContext(ctx, client).Set(ctx, "k", 1, 0)
		return outputs(1)(ctx)
	})))
	_, err := engine.Process(redistest.Soon(t), message.NewRaw(nil, rig.Order("1"), nil))
	if !errors.Is(err, errHandler) || !errors.Is(err, message.ErrEncode) {
		t.Errorf("error %v", err)
	}
	if n := client.Exists(redistest.Soon(t), "out", "k").Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

func TestOutboxRejectsWrongStackBeforeHandlerRuns(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	tr := rig.NewTransactor(t, client)
	added := pipeline.Outbox(pipeline.OutboxConfig{Stream: "out"})
	for name, c := range map[string]struct {
		mw   []message.Middleware
		says string
	}{
		"no pipeline":      {[]message.Middleware{added}, "pipeline: no pipeline in context; put pipeline.Middleware before pipeline.Outbox"},
		"no stream":        {pipelined(client, pipeline.OutboxConfig{}), "pipeline: OutboxConfig.Stream is empty; set the stream of the events"},
		"inside a script":  {[]message.Middleware{luatx.Middleware(tr), added}, "pipeline: pipeline.Outbox inside luatx.Middleware; replace it by outbox.Middleware"},
		"no transaction":   {[]message.Middleware{outbox.Middleware(outbox.Config{})}, "outbox: no transaction in context; put luatx.Middleware before outbox.Middleware"},
		"pipeline instead": {[]message.Middleware{pipeline.Middleware(client), outbox.Middleware(outbox.Config{})}, "replace outbox.Middleware by pipeline.Outbox, or pipeline.Middleware by luatx.Middleware"},
	} {
		r := emitting(t, func(context.Context) ([]*message.Message, error) {
			t.Errorf("%s: the handler ran", name)
			return nil, nil
		}, c.mw...)
		msg := order(name)
		if _, err := r.Process(redistest.Soon(t), msg); err == nil || !strings.HasSuffix(err.Error(), c.says) || msg.Err() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	failing := errors.New("failing")
	r := emitting(t, func(context.Context) ([]*message.Message, error) {
		out, _ := outputs(1)(t.Context())
		return out, failing
	}, pipelined(client, pipeline.OutboxConfig{Stream: "out"})...)
	if _, err := r.Process(redistest.Soon(t), order("1")); !errors.Is(err, failing) {
		t.Errorf("error %v", err)
	}
	if client.Exists(redistest.Soon(t), "out").Val() != 0 {
		t.Error("a handler that failed has added its outputs")
	}
}
