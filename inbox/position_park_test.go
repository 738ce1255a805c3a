package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestMessageThatExpiresIsParkedAndOneWhoseConsumerStopsIsNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expires time.Duration
		parked  bool
	}{"expires": {time.Second, true}, "has expired": {-time.Hour, true}, "stops": {0, false}, "stops before it expires": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := redistest.Mini(t)
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4).WithPrefix(c.Namespace) })
			ctx, stop := context.WithCancel(redistest.Soon(t))
			defer stop()
			r := router(t, "bill", func(ctx context.Context) error {
				if !c.parked {
					stop()
				}
				<-ctx.Done()
				return ctx.Err()
			}, luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{MaxAttempts: 1}))
			msg := ordered(at(1, &message.Tenure{}))
			if c.expires != 0 {
				msg.Attributes[message.AttrExpiryTime] = time.Now().Add(c.expires)
			}
			_, err := r.Process(ctx, msg)
			letters := client.Keys(t.Context(), "*:dead").Val()
			if c.parked && err != nil || !c.parked && !errors.Is(err, context.Canceled) || (len(letters) == 1) != c.parked {
				t.Errorf("%v, dead-letter streams %v", err, letters)
			}
			wantSettled(t, msg, c.parked)
		})
	}
}

func TestMessageThatCannotBeParkedIsNackedWithItsOwnErrorFirst(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	c := newCounting(t, client, inbox.PositionConfig{MaxAttempts: 1})
	c.fail = errHandler
	msg := ordered(at(1, &message.Tenure{}))
	for i := range 2600 { // more than fit into a command
		msg.Attributes[fmt.Sprint("a", i)] = "v"
	}
	err := c.process(msg)
	if !errors.Is(err, errHandler) || !errors.Is(err, luatx.ErrTooLarge) || !strings.HasPrefix(err.Error(), errHandler.Error()) {
		t.Errorf("%.200v", err)
	}
	wantSettled(t, msg, false)
}
