package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

func TestKeysCompareCountsMarksOfEitherModeAndDifferingIdentities(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		ctx := redistest.Soon(t)
		cfg := stack.Config{
			MarkKey:         func(id message.Identity) string { return s.namespace + ":" + id.Source + ":" + id.ID },
			OutboxStreamFor: func(*message.Message) (string, error) { return s.namespace + ":out", nil },
			RelayElsewhere:  true, Logger: slog.New(slog.DiscardHandler),
		}
		marks := []string{"--mark", s.namespace + ":{source}:{id}"}
		pipelined, err := stack.Pipelined(client, cfg)
		redistest.Must(t, err)
		tr := s.service(client)
		scripted, err := stack.Scripted(tr, cfg)
		redistest.Must(t, err)
		cfg.Overlap = client
		both, err := stack.Scripted(tr, cfg)
		redistest.Must(t, err)
		in := s.namespace + ":in"
		publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: in})
		redistest.Must(t, err)
		feed := func(id, subject string, mw ...message.Middleware) {
			t.Helper()
			attrs := message.Attributes{"id": id, "source": "/shop", "type": "pay", "subject": subject, "payment": "p-" + subject}
			redistest.Must(t, publisher.Send(ctx, message.NewRaw([]byte(`{}`), attrs, nil))...)
			if len(mw) == 0 {
				return
			}
			r := message.NewRouter(message.PipeConfig{})
			redistest.Must(t, r.Use(mw...), r.AddHandler("pay", nil, message.NewHandler(
				func(context.Context, *message.TypedMessage[any]) ([]*message.Message, error) { return nil, nil })))
			_, err := r.Process(ctx, message.New(nil, attrs, message.NewAcking(nil, nil)))
			redistest.Must(t, err)
		}
		compare := func(want int, words ...string) string {
			t.Helper()
			return s.run(want, "", append([]string{"keys", "compare", in, "--handler", "pay"}, words...)...)
		}
		feed("1", "a", pipelined)
		feed("2", "a", scripted)
		feed("3", "b", scripted)
		feed("4", "b", both)
		feed("4", "b") // the producer has sent it twice
		feed("5", "b")
		s.has(compare(statusFine, marks...), in+" 6 2 1 2 1 0 0")
		s.has(compare(statusFine, "--mark", "other:{id}"), in+" 6 0 0 4 2 0 0")
		s.has(compare(statusFine), in+" 6 0 0 4 2 0 0") // the default key
		s.has(compare(statusFine, append(marks, "--limit", "2")...), in+" 2 1 0 0 1 0 0")

		s.has(compare(statusInexact, "--mark", "{payment}"), "share the mark \"p-b\" of pipeline mode", `"b" "/shop" "5"`)
		s.has(compare(statusInexact, append(marks, "--id", "{payment}", "--source", "")...), `are one message for the inbox, "b" "" "p-b"`)
		feed("5", "c") // one id for two aggregates: one mark, two messages
		s.has(compare(statusInexact, marks...), in+" 7 2 1 2 2 0 1", `"b" "/shop" "5"`, `"c" "/shop" "5"`)
		client.XAdd(ctx, &redis.XAddArgs{Stream: in, Values: []string{"ce_specversion", "9.0"}})
		s.has(compare(statusInexact, marks...), in+" 8 2 1 2 2 1 1")

		_, out, _ := run(ctx, "", append(append([]string{"keys", "compare", in, "--handler", "pay", "--json"}, marks...), s.flags...)...)
		var got comparison
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Messages != 8 || got.Both != 2 || len(got.Different) != 1 {
			t.Errorf("%v: %s", err, out)
		}
		s.has(s.run(statusUsage, "", "keys", "compare", "--handler", "pay"), "stream is missing; give one or more")
		s.has(s.run(statusUsage, "", "keys", "compare", in), "set exactly one of --handler and --scope")
		s.has(compare(statusUsage, "--limit", "0"), "--limit is 0")
	})
}

func TestKeysCompareUsesTheTagOfTheStreamAsTheAggregate(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		in := luatx.Partitions(4).WithPrefix(s.namespace).TagKey(luatx.Partitions(4).Tags()[0], "in")
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: in, Values: []string{"ce_specversion", "1.0", "ce_id", "1", "ce_source", "/shop", "ce_type", "pay"}})
		s.has(s.run(statusFine, "", "keys", "compare", in, "--scope", "pay"), in+" 1 0 0 0 1 0 0")
	})
}
