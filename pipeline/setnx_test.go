package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/pipeline"
)

var errHandler = errors.New("no such customer")

func TestSetNXAppliesOnceAndMarkLivesForRetention(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tag := redistest.Soon(t), redistest.Tag(t)
		for name, c := range map[string]struct {
			cfg       pipeline.SetNXConfig
			key       string
			retention time.Duration
		}{
			"defaults": {pipeline.SetNXConfig{}, "inbox:/shop:" + tag + "defaults", 24 * time.Hour},
			"configured": {pipeline.SetNXConfig{
				Retention: time.Hour,
				MarkKey:   func(id message.Identity) string { return "seen:" + id.Source + ":" + id.ID },
			}, "seen:/shop:" + tag + "configured", time.Hour},
		} {
			runs := 0
			r := router(t, func(context.Context) error { runs++; return nil }, pipeline.SetNX(client, c.cfg))
			for delivery := range 3 {
				msg := order(tag + name)
				outputs, err := r.Process(ctx, msg)
				if err != nil {
					t.Fatalf("%s, delivery %d: %v", name, delivery, err)
				}
				wantSettled(t, msg, true)
				if want := 1 - min(delivery, 1); len(outputs) != want {
					t.Errorf("%s, delivery %d: %d outputs, want %d", name, delivery, len(outputs), want)
				}
			}
			if runs != 1 {
				t.Errorf("%s: the handler ran %d times", name, runs)
			}
			if ttl := client.TTL(ctx, c.key).Val(); ttl > c.retention || ttl < c.retention-time.Minute {
				t.Errorf("%s: key %s lives for %v, want %v", name, c.key, ttl, c.retention)
			}
		}
	})
}

func TestSetNXKeepsSourceAndIDApartIfTheyHaveColons(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	runs := 0
	r := router(t, func(context.Context) error { runs++; return nil }, pipeline.SetNX(client, pipeline.SetNXConfig{}))
	for key, c := range map[string][2]string{
		"inbox:http%3A//shop:42": {"http://shop", "42"},
		"inbox:http://shop:42":   {"http", "//shop:42"},
		"inbox:http%253A:42":     {"http%3A", "42"},
		"inbox:http%3A:42":       {"http:", "42"},
	} {
		before := runs
		for range 2 {
			msg := order(c[1])
			msg.Attributes["source"] = c[0]
			if _, err := r.Process(redistest.Soon(t), msg); err != nil {
				t.Fatal(err)
			}
		}
		if n := client.Exists(redistest.Soon(t), key).Val(); runs != before+1 || n != 1 {
			t.Errorf("%q: %d runs, %d marks at %s", c, runs-before, n, key)
		}
	}
}

func TestSetNXRemovesMarkOfFailedHandlerEvenAfterItsContextHasEnded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, fail := range map[string]func(cancel func()) error{
			"fails":             func(func()) error { return errHandler },
			"panics":            func(func()) error { panic(errHandler) },
			"fails too late":    func(cancel func()) error { cancel(); return errHandler },
			"panics at the end": func(cancel func()) error { cancel(); panic(errHandler) },
		} {
			id, runs := redistest.Tag(t), 0
			ctx, cancel := context.WithCancel(redistest.Soon(t))
			r := router(t, func(context.Context) error {
				if runs++; runs == 1 {
					return fail(cancel)
				}
				return nil
			}, pipeline.SetNX(client, pipeline.SetNXConfig{}))
			msg := order(id)
			if _, err := r.Process(ctx, msg); !errors.Is(err, errHandler) {
				t.Errorf("%s: error %v", name, err)
			}
			cancel()
			wantSettled(t, msg, false)
			if n := client.Exists(t.Context(), "inbox:/shop:"+id).Val(); n != 0 {
				t.Errorf("%s: the mark is still there", name)
			}
			again := order(id)
			if _, err := r.Process(redistest.Soon(t), again); err != nil {
				t.Errorf("%s: delivered again: %v", name, err)
			}
			wantSettled(t, again, true)
			if runs != 2 || client.Exists(t.Context(), "inbox:/shop:"+id).Val() != 1 {
				t.Errorf("%s: %d runs, %d marks in the end", name, runs, client.Exists(t.Context(), "inbox:/shop:"+id).Val())
			}
		}
	})
}

func TestSetNXKeepsMarkThatAnotherDeliverySetAfterItsOwnExpired(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, id := redistest.Soon(t), redistest.Tag(t)
		r := router(t, func(context.Context) error {
			client.Set(ctx, "inbox:/shop:"+id, "another's", time.Hour)
			return errHandler
		}, pipeline.SetNX(client, pipeline.SetNXConfig{}))
		if _, err := r.Process(ctx, order(id)); !errors.Is(err, errHandler) {
			t.Fatal(err)
		}
		if got := client.Get(ctx, "inbox:/shop:"+id).Val(); got != "another's" {
			t.Errorf("the mark of another is %q", got)
		}
	})
}

func TestSetNXWithLostReplyDoesNotTreatItsOwnMessageAsADuplicate(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	direct := server.Client(t)
	for name, c := range map[string]struct {
		retries, failures int
	}{
		"sent again":      {3, 0},
		"given up":        {-1, 1},
		"lost every time": {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, id, runs := redistest.Soon(t), redistest.Tag(t), 0
			proxy := redistest.Proxy(t, server.Addr())
			client := redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = c.retries })
			if err := client.Get(ctx, id).Err(); !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			proxy.Next(1+c.failures*max(c.retries, 0), respproxy.Command("SET"), respproxy.CutReply())
			r := router(t, func(context.Context) error { runs++; return nil }, pipeline.SetNX(client, pipeline.SetNXConfig{}))
			for failure := range c.failures {
				msg := order(id)
				if _, err := r.Process(ctx, msg); err == nil || !strings.HasPrefix(err.Error(), "pipeline: SET NX: ") {
					t.Errorf("failure %d: %v", failure, err)
				}
				wantSettled(t, msg, false)
			}
			if runs != 0 {
				t.Error("the handler ran without a mark")
			}
			msg := order(id)
			if _, err := r.Process(ctx, msg); err != nil {
				t.Fatal(err)
			}
			wantSettled(t, msg, true)
			if runs != 1 || direct.Exists(ctx, "inbox:/shop:"+id).Val() != 1 {
				t.Errorf("%d runs, %d marks", runs, direct.Exists(ctx, "inbox:/shop:"+id).Val())
			}
			if _, err := r.Process(ctx, order(id)); err != nil || runs != 1 {
				t.Errorf("a duplicate: %v, %d runs", err, runs)
			}
		})
	}
}

func TestSetNXThatCannotReadAForeignMarkAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, id := redistest.Soon(t), redistest.Tag(t)
		redistest.Must(t, client.RPush(ctx, "inbox:/shop:"+id, "no mark").Err())
		r := router(t, func(context.Context) error { t.Error("the handler ran"); return nil }, pipeline.SetNX(client, pipeline.SetNXConfig{}))
		msg := order(id)
		if _, err := r.Process(ctx, msg); err == nil || !strings.HasPrefix(err.Error(), "pipeline: SET NX: WRONGTYPE") {
			t.Errorf("error %v", err)
		}
		wantSettled(t, msg, false)
	})
}

func TestSetNXFailsWithoutServerOrMessageIdentity(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := pipeline.SetNXConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	client := redistest.Shared(t).Client(t)
	ctx, runs := redistest.Soon(t), 0
	r := router(t, func(context.Context) error {
		runs++
		_ = client.Close()
		return errHandler
	}, pipeline.SetNX(client, cfg))

	nameless := order("")
	_, err := r.Process(ctx, nameless)
	if !message.IsPermanent(err) || err.Error() != "pipeline: message has no ID attribute" {
		t.Errorf("no id: %v", err)
	}
	wantSettled(t, nameless, false)

	id := redistest.Tag(t)
	if _, err := r.Process(ctx, order(id)); !errors.Is(err, errHandler) {
		t.Errorf("a handler whose mark cannot be taken back: %v", err)
	}
	if text := log.String(); !strings.Contains(text, "mark not removed") || !strings.Contains(text, "inbox:/shop:"+id) {
		t.Errorf("the log does not name the mark that stays: %q", text)
	}
	msg := order(redistest.Tag(t))
	if _, err := r.Process(ctx, msg); !errors.Is(err, redis.ErrClosed) || !strings.HasPrefix(err.Error(), "pipeline: SET NX: ") || message.IsPermanent(err) {
		t.Errorf("a closed client: %v", err)
	}
	wantSettled(t, msg, false)
	if runs != 1 {
		t.Errorf("the handler ran %d times, want 1", runs)
	}
}
