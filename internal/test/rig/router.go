package rig

import (
	"context"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// NewRouter returns a Router that runs handle, under mw, for every message.
func NewRouter(t testing.TB, cfg message.PipeConfig, mw message.Middleware, handle func(ctx context.Context) ([]*message.Message, error)) *message.Router {
	t.Helper()
	r := message.NewRouter(cfg)
	if err := r.Use(mw); err != nil {
		t.Fatal(err)
	}
	h := message.NewHandler(func(ctx context.Context, _ *message.TypedMessage[any]) ([]*message.Message, error) {
		return handle(ctx)
	})
	if err := r.AddHandler("orders", nil, h); err != nil {
		t.Fatal(err)
	}
	return r
}

// Scripted returns the middleware of scripted mode.
func Scripted(t testing.TB, tr *luatx.Transactor) message.Middleware {
	t.Helper()
	mw, err := stack.Scripted(tr, stack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}
