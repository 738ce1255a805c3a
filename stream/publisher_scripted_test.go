package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// inBubblePublisher runs a test with a publisher whose server replies to the commands in say, and takes all others.
func inBubblePublisher(t *testing.T, cfg stream.PublisherConfig, say map[string]any, test func(t *testing.T, server *scripted.Server, pub *stream.Publisher, logs *rig.Lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hash := redis.NewScript(lua.Script("window", nil)).Hash()
		server := scripted.New(func(cmd []string) any {
			if strings.EqualFold(cmd[0], "script") {
				return hash // by which the client runs it from now on
			}
			switch answer := say[strings.ToLower(cmd[0])].(type) {
			case func([]string) any:
				return answer(cmd)
			case nil:
				return "1-1"
			default:
				return answer
			}
		}, "window", "trim")
		logs := &rig.Lines{}
		if cfg.Logger = logs.Logger(); cfg.StreamFor == nil {
			cfg.Stream = "s"
		}
		pub, err := stream.NewPublisher(server.Client(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		test(t, server, pub, logs)
	})
}

// heads returns the words of each XADD before its fields.
func heads(server *scripted.Server) string {
	var all []string
	for _, h := range server.Heard("xadd") {
		head, _, _ := strings.Cut(strings.Join(h.Cmd, " "), " *")
		all = append(all, head)
	}
	return strings.Join(all, ", ")
}

func TestEntryIsAddedOnceWhereTheServerKnowsHow(t *testing.T) {
	t.Parallel()
	const once, plain = "xadd s idmp /shop 1, xadd s idmp /shop 2, xadd s idmp /shop 3", "xadd s, xadd s, xadd s"
	for name, c := range map[string]struct {
		window time.Duration
		reply  any
		want   string
		asks   string // of the server, once for the stream
		denied string
	}{
		"knows":       {0, []any{"once"}, once, "[window 1 s 300 10000]", ""},
		"knows not":   {0, []any{"plain"}, plain, "[window 1 s 300 10000]", ""},
		"denies":      {0, []any{"denied", "NOPERM not you"}, plain, "[window 1 s 300 10000]", `idempotency window denied" stream=s error="NOPERM not you"`},
		"refuses":     {0, errors.New("NOPERM nor you"), plain, "[window 1 s 300 10000]", `idempotency window denied" stream=s error="NOPERM nor you"`},
		"says what":   {0, []any{}, plain, "[window 1 s 300 10000]", ""},
		"a second":    {time.Second, []any{"once"}, once, "[window 1 s 1 10000]", ""},
		"rounded up":  {time.Second + 1, []any{"once"}, once, "[window 1 s 2 10000]", ""},
		"is not told": {-1, []any{"once"}, plain, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := stream.PublisherConfig{Producer: bySource, IdempotencyWindow: c.window}
			inBubblePublisher(t, cfg, map[string]any{"window": c.reply}, func(t *testing.T, server *scripted.Server, pub *stream.Publisher, logs *rig.Lines) {
				send(t, pub, order("1"), order("2"))
				time.Sleep(time.Minute - 1)
				send(t, pub, order("3"))
				var asks []string
				for _, h := range server.Heard("window") {
					asks = append(asks, fmt.Sprint(h.Cmd))
				}
				if got := heads(server); got != c.want || strings.Join(asks, " ") != c.asks {
					t.Errorf("asked %q and wrote %q", asks, got)
				}
				if n := logs.Count("denied"); n > 1 || (n == 1) != (c.denied != "") || c.denied != "" && logs.Count(c.denied) != 1 {
					t.Errorf("logged:\n%s", logs)
				}
				time.Sleep(time.Nanosecond)
				if send(t, pub, order("4")); c.asks != "" && len(server.Heard("window")) != 2 {
					t.Errorf("asked %d times, want again after a minute", len(server.Heard("window")))
				}
			})
		})
	}
}

func TestServersAreAskedOnceForEachOfSeveralStreams(t *testing.T) {
	t.Parallel()
	answer := func(cmd []string) any {
		return map[string]any{"/a": []any{"once"}, "/b": []any{"plain"}, "/c": errors.New("OOM full")}[cmd[2]]
	}
	cfg := stream.PublisherConfig{Producer: func(*message.RawMessage) string { return "p" }, StreamFor: func(msg *message.RawMessage) (string, error) { return msg.Source(), nil }}
	inBubblePublisher(t, cfg, map[string]any{"window": answer}, func(t *testing.T, server *scripted.Server, pub *stream.Publisher, _ *rig.Lines) {
		var msgs []*message.RawMessage
		for i, key := range []string{"/a", "/b", "/c", "/a"} {
			msgs = append(msgs, message.NewRaw(nil, message.Attributes{"id": fmt.Sprint(i), "source": key, "type": "t"}, nil))
		}
		errs := pub.Send(t.Context(), msgs...)
		if got := heads(server); got != "xadd /a idmp p 0, xadd /b, xadd /a idmp p 3" || len(server.Heard("window")) != 3 {
			t.Errorf("asked %d times, wrote %q", len(server.Heard("window")), got)
		}
		if errs[0] != nil || errs[1] != nil || errs[3] != nil || errs[2] == nil || errs[2].Error() != `stream: set the idempotency window of "/c": OOM full` {
			t.Errorf("errors are %v", errs)
		}
	})
}

func TestScriptOfTheWindowIsLoadedAFewTimes(t *testing.T) {
	t.Parallel()
	unloaded := errors.New("NOSCRIPT no")
	for loads, answers := range [][]any{{[]any{"once"}}, {unloaded, []any{"once"}}, {unloaded, unloaded, []any{"once"}}, {unloaded, unloaded, unloaded, []any{"once"}}, {unloaded}} {
		inBubblePublisher(t, stream.PublisherConfig{Producer: bySource}, map[string]any{"window": scripted.InTurn(answers...)}, func(t *testing.T, server *scripted.Server, pub *stream.Publisher, _ *rig.Lines) {
			send(t, pub, order("1"))
			want := "xadd s idmp /shop 1"
			if loads == 4 {
				want, loads = "xadd s", 3
			}
			if n := len(server.Heard("script", "load")); n != loads || len(server.Heard("window")) != loads+1 || heads(server) != want {
				t.Errorf("loaded %d times, want %d, wrote %q", n, loads, heads(server))
			}
		})
	}
}

func TestServerThatDoesNotKnowIDMPAfterAllGetsAPlainEntry(t *testing.T) {
	t.Parallel()
	for reply, again := range map[string]bool{
		"ERR Invalid stream ID specified as stream command argument": true, "ERR wrong number of arguments for 'xadd' command": true,
		"ERR syntax error": true, "ERR no": false, "WRONGTYPE no": false,
	} {
		answer := func(cmd []string) any {
			if cmd[2] == "idmp" {
				return errors.New(reply)
			}
			return "1-1"
		}
		inBubblePublisher(t, stream.PublisherConfig{Producer: bySource, MaxLen: 1}, map[string]any{"window": []any{"once"}, "xadd": answer}, func(t *testing.T, server *scripted.Server, pub *stream.Publisher, _ *rig.Lines) {
			errs := pub.Send(t.Context(), nil, order("1"))
			want := "xadd s idmp /shop 1 maxlen ~ 1"
			if again {
				want += ", xadd s maxlen ~ 1"
			}
			if got := heads(server); got != want || (errs[1] == nil) != again || errs[0] == nil {
				t.Errorf("%s: wrote %q, errors %v", reply, got, errs)
			}
			pub.Send(t.Context(), order("2"))
			if want += ", xadd s maxlen ~ 1"; again && heads(server) != want {
				t.Errorf("%s: then wrote %q", reply, heads(server))
			}
		})
	}
}

func TestWrittenStreamsAreTrimmedOncePerInterval(t *testing.T) {
	t.Parallel()
	refuse := func(cmd []string) any {
		if cmd[1] == "refused" {
			return errRefused
		}
		return "1-1"
	}
	cfg := stream.PublisherConfig{TrimAcked: true, TrimInterval: 10 * time.Second, StreamFor: func(msg *message.RawMessage) (string, error) { return msg.ID(), nil }}
	inBubblePublisher(t, cfg, map[string]any{"trim": scripted.InTurn(0, errRefused), "xadd": refuse}, func(t *testing.T, server *scripted.Server, pub *stream.Publisher, logs *rig.Lines) {
		for _, pause := range []time.Duration{0, 10*time.Second - 1, 1} {
			time.Sleep(pause)
			pub.Send(t.Context(), nil, order("refused"), order("a"), order("a"))
		}
		if got := scripted.Words(server.Heard("trim")); got != "0s trim 1 a ~\n10s trim 1 a ~" {
			t.Errorf("trimmed by\n%s", got)
		}
		if n := logs.Count(`stream: trim failed" stream=a error=`); n != 1 || logs.Count("trim failed") != 1 {
			t.Errorf("logged:\n%s", logs)
		}
	})
}

func TestPublisherReturnsErrorsOfItsFunctions(t *testing.T) {
	t.Parallel()
	cfg := stream.PublisherConfig{
		StreamFor: func(msg *message.RawMessage) (string, error) {
			if msg.ID() == "empty" {
				return "", nil
			}
			return "s", nil
		},
		Marshal: func(msg *message.RawMessage) ([]any, error) {
			switch msg.ID() {
			case "refused":
				return nil, errBusy
			case "none":
				return nil, nil
			}
			return []any{"one"}, nil
		},
	}
	inBubblePublisher(t, cfg, nil, func(t *testing.T, _ *scripted.Server, pub *stream.Publisher, _ *rig.Lines) {
		errs := pub.Send(t.Context(), nil, order("empty"), order("refused"), order("none"), order("odd"))
		for i, want := range []string{
			"stream: the message is nil", "stream: no stream for message empty: StreamFor returned an empty key", "stream: message refused: busy",
			"returned 0 fields", "returned 1 fields",
		} {
			if errs[i] == nil || !strings.Contains(errs[i].Error(), want) || !message.IsPermanent(errs[i]) {
				t.Errorf("error %v, want %q", errs[i], want)
			}
		}
		if !errors.Is(errs[2], errBusy) {
			t.Errorf("%v hides its cause", errs[2])
		}
	})
}

// deadServer answers for the stream dead with one dead letter of the stream s.
func deadServer(t *testing.T, fields int, say map[string]any) (*scripted.Server, *redis.Client) {
	t.Helper()
	words := []any{"dead-reason", "r", "dead-stream", "s", "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "1", "dead-first", "1", "dead-last", "1"}
	if fields == 0 {
		words = append([]any{"dead-packed", "1:a1:b"}, words...)
	}
	letter := []any{"5-1", append(words, "a", "b")}
	if fields == 0 {
		letter = []any{"5-1", words}
	}
	server := scripted.New(func(cmd []string) any {
		if answer, ok := say[strings.ToLower(cmd[0])]; ok {
			if next, ok := answer.(func([]string) any); ok {
				return next(cmd)
			}
			return answer
		}
		switch strings.ToLower(cmd[0]) {
		case "xrevrange", "xrange":
			return []any{letter}
		case "putback":
			return "6-1"
		}
		return scripted.Status("OK")
	}, "putback")
	return server, server.Client(t)
}

func TestDeadLettersThatCannotBeReadOrMovedAreErrors(t *testing.T) {
	t.Parallel()
	putBack := func(ctx context.Context, client redis.UniversalClient) (int, error) {
		return stream.PutBack(ctx, client, "dead", "5-1")
	}
	all := func(ctx context.Context, client redis.UniversalClient) (int, error) {
		return stream.PutBackAll(ctx, client, "dead")
	}
	list := func(ctx context.Context, client redis.UniversalClient) (n int, err error) {
		for _, err = range stream.DeadLetters(ctx, client, "dead") {
		}
		return 0, err
	}
	for name, c := range map[string]struct {
		fields int
		say    map[string]any
		call   func(context.Context, redis.UniversalClient) (int, error)
		want   string
	}{
		"a list that cannot be read":      {1, map[string]any{"xrange": errRefused}, list, `stream: list dead letters of "dead": ERR no`},
		"one that cannot be read":         {1, map[string]any{"xrange": errRefused}, putBack, `stream: put back 5-1 of "dead": ERR no`},
		"one that cannot be moved":        {1, map[string]any{"putback": errRefused}, putBack, `stream: put back 5-1 of "dead": ERR no`},
		"a packed one that is not read":   {0, map[string]any{"xrange": scripted.InTurn([]any{[]any{"5-1", []any{"dead-packed", "1:a1:b", "dead-reason", "r", "dead-stream", "s", "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "1", "dead-first", "1", "dead-last", "1"}}}, errRefused)}, putBack, `stream: put back 5-1 of "dead": ERR no`},
		"a packed one that is not moved":  {0, map[string]any{"exec": errRefused}, putBack, `stream: put back 5-1 of "dead": ERR no`},
		"all, without a last one":         {1, map[string]any{"xrevrange": errRefused}, all, "ERR no"},
		"all, without a list":             {1, map[string]any{"xrange": errRefused}, all, `stream: list dead letters of "dead": ERR no`},
		"all, one of which stays":         {1, map[string]any{"putback": errRefused}, all, `stream: put back 5-1 of "dead": ERR no`},
		"all, and others write meanwhile": {0, map[string]any{"exec": nil}, all, "redis: transaction failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, client := deadServer(t, c.fields, c.say)
				began := time.Now()
				n, err := c.call(t.Context(), client)
				if n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%d were moved, error %v, want %q", n, err, c.want)
				}
				if took, tries := time.Since(began), len(server.Heard("watch")); strings.HasSuffix(name, "meanwhile") && (tries != 100 || took < 150*time.Millisecond || took > 350*time.Millisecond) {
					t.Errorf("tried %d times within %v", tries, took)
				}
			})
		})
	}
}
