// Package loyalty is a small service. Its tests are the example: loyalty_test.go shows how to test a service with
// luatxtest, including crashes, network faults and the clock.
//
//	go test ./examples/loyalty
//
// It needs no server, prints ok, and takes five seconds, which is how long a crashed process tries to resolve its commit,
// because it does not notice its crash.
package loyalty

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
)

// RemindAfter is the time between a purchase and the reminder of the points.
const RemindAfter = 30 * 24 * time.Hour

// Purchase is the data of a message.
type Purchase struct {
	Customer string
	Pence    int
}

// Points is the event of a purchase, and of the reminder.
type Points struct {
	Customer string
	Points   int
}

// New returns the service. A purchase gives one point per pound, an event about it, and a later event as a reminder. The
// function now returns the time, so that tests can replace it.
func New(t *luatx.Transactor, client redis.UniversalClient, now func() time.Time) (*message.Router, error) {
	mw, err := stack.Scripted(t, stack.Config{At: func(output *message.Message) (at time.Time, err error) {
		if output.Type() == "points.reminder" {
			at = now().Add(RemindAfter)
		}
		return at, nil
	}})
	if err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, msg *message.TypedMessage[Purchase]) ([]*message.Message, error) {
		points := Points{msg.Data.Customer, msg.Data.Pence / 100}
		if points.Points <= 0 {
			return nil, message.Permanent(errors.New("amounts below a pound earn no points"))
		}
		key, err := t.Keyspace().Key(points.Customer, "points")
		if err != nil {
			return nil, err
		}
		added := luatx.CmdableFromContext(ctx, client).IncrBy(ctx, key, int64(points.Points))
		event := func(kind string) *message.Message {
			return message.New(points, message.Attributes{"source": "/loyalty", "type": kind, "subject": points.Customer}, nil)
		}
		return []*message.Message{event("points.added"), event("points.reminder")}, luatx.Queued(added)
	}
	router := message.NewRouter(message.PipeConfig{})
	return router, errors.Join(router.Use(mw), router.AddHandler("purchase", nil, message.NewHandler(handle)))
}
