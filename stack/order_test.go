package stack_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/pipeline"
	"github.com/luatx/luatx/stack"
)

// layer is a middleware of either mode, with the name that errors must contain.
type layer struct {
	name string
	mw   message.Middleware
}

func layers(client redis.UniversalClient, t *luatx.Transactor) []layer {
	quiet := pipeline.SetNXConfig{Logger: slog.New(slog.DiscardHandler)}
	return []layer{
		{"pipeline.Overlap", pipeline.Overlap(client, quiet)},
		{"luatx.Middleware", luatx.Middleware(t)},
		{"inbox.Middleware", inbox.Middleware(inbox.Config{})},
		{"inbox.Precheck", inbox.Precheck()},
		{"outbox.Middleware", outbox.Middleware(outbox.Config{})},
		{"pipeline.SetNX", pipeline.SetNX(client, quiet)},
		{"pipeline.Middleware", pipeline.Middleware(client)},
		{"pipeline.Outbox", pipeline.Outbox(pipeline.OutboxConfig{Stream: "{a}:out"})},
	}
}

// inOrder reports whether the names are in the given order, at most once each, and include the required ones.
func inOrder(names, order []string) bool {
	last := -1
	for _, name := range names {
		at := slices.Index(order, name)
		if at <= last {
			return false
		}
		last = at
	}
	return true
}

// sound reports whether a stack keeps its guarantees, as documented. In a transaction, the outbox may surround the inbox, and
// Precheck may occur twice.
func sound(names []string) bool {
	has := func(name string) bool { return slices.Contains(names, name) }
	if has("pipeline.Outbox") && !has("pipeline.Middleware") || has("inbox.Precheck") && !has("inbox.Middleware") {
		return false
	}
	if (has("inbox.Middleware") || has("outbox.Middleware")) && !has("luatx.Middleware") {
		return false
	}
	once := func(name string) []string {
		if i := slices.Index(names, name); i >= 0 {
			return slices.Concat(names[:i+1], slices.DeleteFunc(slices.Clone(names[i+1:]), func(n string) bool { return n == name }))
		}
		return names
	}
	rest := once("inbox.Precheck")
	scripted := []string{"pipeline.Overlap", "luatx.Middleware"}
	return inOrder(rest, append(scripted, "inbox.Middleware", "inbox.Precheck", "outbox.Middleware")) ||
		inOrder(rest, append(scripted, "inbox.Middleware", "outbox.Middleware", "inbox.Precheck")) ||
		inOrder(rest, append(scripted, "outbox.Middleware", "inbox.Middleware", "inbox.Precheck")) ||
		inOrder(rest, []string{"pipeline.SetNX", "pipeline.Middleware", "pipeline.Outbox"})
}

// TestUnsoundOrderOfMiddlewaresFailsAtTheFirstMessage tries every stack of up to four of the eight middlewares. A sound stack
// works. Any other fails before the handler, with an error that names two middlewares, or a missing one, and a remedy. Nothing
// is written.
func TestUnsoundOrderOfMiddlewaresFailsAtTheFirstMessage(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	ctx := redistest.Soon(t)
	transactor, err := luatx.New(client, luatx.Config{Namespace: "order", Logger: slog.New(slog.DiscardHandler)})
	redistest.Must(t, err)
	all := layers(client, transactor)
	tried, works := 0, 0
	var try func(stack []layer)
	try = func(stack []layer) {
		if len(stack) > 0 {
			tried++
			if tryStack(ctx, t, client, stack, fmt.Sprint("m", tried)) {
				works++
			}
		}
		if len(stack) < 4 {
			for _, l := range all {
				try(append(slices.Clip(stack), l))
			}
		}
	}
	try(nil)
	if tried != 8+8*8+8*8*8+8*8*8*8 || works < 20 || works > 60 {
		t.Errorf("%d stacks, of which %d work", tried, works)
	}
}

func tryStack(ctx context.Context, t *testing.T, client redis.UniversalClient, stack []layer, id string) (works bool) {
	t.Helper()
	var names []string
	var mw []message.Middleware
	for _, l := range stack {
		names, mw = append(names, l.name), append(mw, l.mw)
	}
	runs := 0
	router := rig.NewRouter(t, message.PipeConfig{Logger: slog.New(slog.DiscardHandler)}, message.Chain(mw...), func(context.Context) ([]*message.Message, error) {
		runs++
		return nil, nil
	})
	msg := message.New(nil, message.Attributes{"id": id, "source": "/s", "type": "t", "subject": "a"}, message.NewAcking(nil, nil))
	before := client.DBSize(ctx).Val()
	_, err := router.Process(ctx, msg)
	if sound(names) {
		if err != nil || runs != 1 || msg.Err() != nil {
			t.Errorf("%v: %d runs, error %v", names, runs, err)
		}
		return true
	}
	switch {
	case err == nil || runs != 0 || msg.Err() == nil:
		t.Errorf("%v: %d runs, error %v, nacked with %v", names, runs, err, msg.Err())
	case client.DBSize(ctx).Val() != before:
		t.Errorf("%v: something was left behind", names)
	default:
		wantAdvice(t, names, err.Error())
	}
	return false
}

// wantAdvice checks that an error names a middleware of the stack and a remedy.
func wantAdvice(t *testing.T, names []string, text string) {
	t.Helper()
	named := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) })
	if !named || !strings.Contains(text, "put ") && !strings.Contains(text, "replace ") && !strings.Contains(text, "leave one out") && !strings.Contains(text, "use one ") {
		t.Errorf("%v: the error says not what to do: %s", names, text)
	}
}

func TestStacksInsideOneAnotherFailBeforeHandler(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	transactor, err := luatx.New(client, luatx.Config{Namespace: "mixed", Logger: slog.New(slog.DiscardHandler)})
	redistest.Must(t, err)
	cfg := stack.Config{OutboxStream: "{a}:out", Logger: slog.New(slog.DiscardHandler)}
	pipelined, err := stack.Pipelined(client, cfg)
	redistest.Must(t, err)
	scripted, err := stack.Scripted(transactor, cfg)
	redistest.Must(t, err)
	cfg.Overlap = client
	overlap, err := stack.Scripted(transactor, cfg)
	redistest.Must(t, err)
	both := map[string]message.Middleware{"pipelined": pipelined, "scripted": scripted, "overlap": overlap}
	for outer, first := range both {
		for inner, second := range both {
			ran := false
			router := rig.NewRouter(t, message.PipeConfig{}, message.Chain(first, second), func(context.Context) ([]*message.Message, error) {
				ran = true
				return nil, nil
			})
			attrs := message.Attributes{"id": outer + inner, "source": "/s", "type": "t", "subject": "a"}
			_, err := router.Process(redistest.Soon(t), message.New(nil, attrs, message.NewAcking(nil, nil)))
			if err == nil || ran || !strings.Contains(err.Error(), "put ") && !strings.Contains(err.Error(), "leave one out") && !strings.Contains(err.Error(), "replace ") {
				t.Errorf("%s around %s: ran %t, error %v", outer, inner, ran, err)
			}
		}
	}
}
