package rig

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// NewRouter returns a Router that runs handle, under mw, for every message.
func NewRouter(t testing.TB, cfg message.PipeConfig, mw message.Middleware, handle func(ctx context.Context) ([]*message.Message, error)) *message.Router {
	t.Helper()
	r := message.NewRouter(cfg)
	redistest.Must(t, r.Use(mw))
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		return handle(ctx)
	})
	redistest.Must(t, r.AddHandler("orders", nil, h))
	return r
}

// Scripted returns the middleware of scripted mode.
func Scripted(t testing.TB, tr *luatx.Transactor) message.Middleware {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{})
	redistest.Must(t, err)
	return mw
}

// Incr is the function of a transaction that adds one to its aggregate's key n.
func Incr(tx *luatx.Tx) error {
	n, err := tx.Key("n")
	return errors.Join(err, luatx.Queued(tx.Pipeline().Incr(context.Background(), n)))
}

// Emit is the function of a transaction that emits an event.
func Emit(tx *luatx.Tx) error { return tx.Emit(luatx.Event{Body: []byte("{}")}) }

// NewCounter returns a Router in scripted mode that adds one to a key for every message.
func NewCounter(t testing.TB, tr *luatx.Transactor, client redis.Cmdable, key string) *message.Router {
	t.Helper()
	return NewRouter(t, message.PipeConfig{}, Scripted(t, tr), func(ctx context.Context) ([]*message.Message, error) {
		return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key))
	})
}

// Delivered returns a message of aggregate a that did not come from a stream.
func Delivered(id string) *message.Message {
	return message.New(nil, Order(id), message.NewAcking(nil, nil))
}
