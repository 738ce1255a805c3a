package pipeline_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/pipeline"
)

func TestOverlapRunsHandlerOnceForDeliveriesToBothModes(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		cfg := pipeline.SetNXConfig{Retention: time.Hour, MarkKey: func(id message.Identity) string { return "seen:" + id.Source + ":" + id.ID }}
		for _, first := range []string{"pipelined", "scripted"} {
			id, ran := redistest.Tag(t), []string(nil)
			handle := func(mode string, mw ...message.Middleware) *message.Router {
				return router(t, func(context.Context) error { ran = append(ran, mode); return nil }, mw...)
			}
			routers := map[string]*message.Router{
				"pipelined": handle("pipelined", pipeline.SetNX(client, cfg), pipeline.Middleware(client)),
				"scripted":  handle("scripted", pipeline.Overlap(client, cfg), luatx.Middleware(tr), inbox.Middleware(inbox.Config{})),
			}
			for _, mode := range []string{first, "scripted", "pipelined", "scripted"} {
				msg := order(id)
				if _, err := routers[mode].Process(redistest.Soon(t), msg); err != nil {
					t.Fatal(err)
				}
				wantSettled(t, msg, true)
			}
			if len(ran) != 1 || ran[0] != first {
				t.Errorf("first %s: the handler ran in %v", first, ran)
			}
			if ttl := client.TTL(t.Context(), "seen:/shop:"+id).Val(); ttl > time.Hour || ttl < 59*time.Minute {
				t.Errorf("first %s: the mark lives for %v", first, ttl)
			}
		}
	})
}

func TestOverlapLeavesNoMarkAfterAFailure(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, id, runs := rig.NewTransactor(t, client), redistest.Tag(t), 0
		r := router(t, func(context.Context) error {
			if runs++; runs < 3 {
				return errHandler
			}
			return nil
		}, pipeline.Overlap(client, pipeline.SetNXConfig{}), luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
		for delivery := range 4 {
			msg := order(id)
			_, err := r.Process(redistest.Soon(t), msg)
			if (err != nil) != (delivery < 2) || client.Exists(t.Context(), "inbox:/shop:"+id).Val() != int64(delivery/2) {
				t.Errorf("delivery %d: error %v, %d marks", delivery, err, client.Exists(t.Context(), "inbox:/shop:"+id).Val())
			}
			wantSettled(t, msg, delivery >= 2)
		}
		if runs != 3 {
			t.Errorf("%d runs", runs)
		}
	})
}

func TestOverlapWritesItsMarkEvenIfTheContextEndsAfterTheCommit(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, id := rig.NewTransactor(t, client), redistest.Tag(t)
		ctx, cancel := context.WithCancel(redistest.Soon(t))
		defer cancel()
		shutdown := message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
			return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
				defer cancel()
				return next(ctx, msg)
			}
		})
		r := router(t, func(context.Context) error { return nil },
			pipeline.Overlap(client, pipeline.SetNXConfig{}), shutdown, luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))
		if _, err := r.Process(ctx, order(id)); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Exists(t.Context(), "inbox:/shop:"+id).Result(); err != nil || n != 1 {
			t.Errorf("%d marks, %v; want 1", n, err)
		}
	})
}

func TestOverlapFailsIfLookupFailsAndLogsAMarkThatItCannotWrite(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := redistest.Shared(t)
	marks, tr, runs := server.Client(t), rig.NewTransactor(t, server.Client(t)), 0
	r := router(t, func(context.Context) error {
		runs++
		return marks.Close()
	}, pipeline.Overlap(marks, pipeline.SetNXConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}), luatx.Middleware(tr), inbox.Middleware(inbox.Config{}))

	nameless := order("")
	if _, err := r.Process(redistest.Soon(t), nameless); !message.IsPermanent(err) {
		t.Errorf("no id: %v", err)
	}
	id := redistest.Tag(t)
	msg := order(id)
	if _, err := r.Process(redistest.Soon(t), msg); err != nil {
		t.Errorf("applied without a mark: %v", err)
	}
	wantSettled(t, msg, true)
	if text := log.String(); !strings.Contains(text, "mark not written") || !strings.Contains(text, "inbox:/shop:"+id) {
		t.Errorf("the log does not name the mark that is missing: %q", text)
	}
	msg = order(redistest.Tag(t))
	if _, err := r.Process(redistest.Soon(t), msg); err == nil || !strings.HasPrefix(err.Error(), "pipeline: overlap: ") {
		t.Errorf("a closed client: %v", err)
	}
	wantSettled(t, msg, false)
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
