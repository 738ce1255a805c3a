package luatxtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

type (
	PlaceOrder  struct{ ID, Product string }
	OrderPlaced struct{ ID string }
)

// service is the code under test: a handler in the stack, on the given Transactor.
func service(tr *luatx.Transactor, client redis.UniversalClient) (*message.Router, error) {
	mw, err := stack.Scripted(tr, stack.Config{})
	if err != nil {
		return nil, err
	}
	router := message.NewRouter(message.PipeConfig{})
	handler := message.NewCommandHandler(func(ctx context.Context, cmd PlaceOrder) ([]OrderPlaced, error) {
		if cmd.Product == "" {
			return nil, message.Permanent(errors.New("no product"))
		}
		key, err := tr.Keyspace().Key(cmd.ID, "order")
		if err != nil {
			return nil, err
		}
		if err := luatx.CmdableFromContext(ctx, client).HSet(ctx, key, "product", cmd.Product).Err(); err != nil {
			return nil, err
		}
		return []OrderPlaced{{cmd.ID}}, nil
	}, message.CommandHandlerConfig{Source: "/orders"})
	return router, errors.Join(router.Use(mw), router.AddHandler("place-order", nil, handler))
}

// deliver passes a message to the service, like a broker.
func deliver(ctx context.Context, router *message.Router, cmd PlaceOrder) error {
	_, err := router.Process(ctx, message.New(cmd, message.Attributes{
		"id": "m-" + cmd.ID, "source": "/web", "type": "place.order", "subject": cmd.ID,
	}, nil))
	return err
}

// TestOrderIsPlacedOnceDespiteACrash is a test of a service, as its users would write it.
func TestOrderIsPlacedOnceDespiteACrash(t *testing.T) {
	t.Parallel()
	env := luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
	router, err := service(env.Transactor, env.Client)
	if err != nil {
		t.Fatal(err)
	}
	if err := deliver(env.Context(), router, PlaceOrder{ID: "7"}); !message.IsPermanent(err) {
		t.Error(err)
	}
	luatxtest.RequireNothingEmitted(t, env.Transactor)

	// The process dies after its commit and before it gets the reply. The broker delivers the message again.
	env.Crash(luatxtest.AfterCommit)
	if err := deliver(env.Context(), router, PlaceOrder{"17", "lamp"}); err == nil {
		t.Error("the process lives")
	}
	env = env.Restart()
	if router, err = service(env.Transactor, env.Client); err != nil {
		t.Fatal(err)
	}
	if err := deliver(env.Context(), router, PlaceOrder{"17", "lamp"}); err != nil {
		t.Error(err)
	}
	luatxtest.RequireEmitted(t, env.Transactor, luatxtest.Want{Source: "/orders", Data: OrderPlaced{"17"}})
	if all := luatxtest.Emitted(t, env.Transactor); len(all) != 1 {
		t.Errorf("%d events", len(all))
	}
}

func TestReminderIsSentWhenItIsDue(t *testing.T) {
	t.Parallel()
	env := luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
	reminded := make(chan string, 1)
	r, err := relay.New(env.Transactor, relay.Func(func(_ context.Context, e *message.RawMessage) error {
		reminded <- e.ID()
		return nil
	}, relay.FuncConfig{}), relay.Config{SweepInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(env.Context()) }()
	if _, err := env.Enqueue(env.Context(), "17", luatx.Event{
		ID: "remind-17", At: env.Now().Add(7 * 24 * time.Hour), Body: []byte(`{"specversion":"1.0","id":"remind-17","type":"reminder","source":"/orders"}`),
	}); err != nil {
		t.Fatal(err)
	}
	env.Advance(6 * 24 * time.Hour)
	luatxtest.RequireEmitted(t, env.Transactor, luatxtest.Want{Type: "reminder"}) // still scheduled
	env.Advance(24 * time.Hour)
	if id := <-reminded; id != "remind-17" {
		t.Error(id)
	}
	env.Restart()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
