package stream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestMessageThatAStoppedRouterReturnsCostsNoDelivery(t *testing.T) {
	t.Parallel()
	f := shared(t)
	send(t, f.publisher(t), message.NewRaw(nil, message.Attributes{message.AttrType: "t"}, nil))
	cfg := f.config()
	cfg.MaxDeliveries, cfg.MaxIdleTime = 1, 100*time.Millisecond
	first := f.subscribe(t, cfg)
	first.next(t).Nack(fmt.Errorf("%w before it was taken over", message.ErrStopped))
	first.stop()
	second := f.subscribe(t, cfg)
	eventually(t, func() bool { s := second.Stats(); return s.Delivered == 1 || s.DeadLettered > 0 }, func() string { return "not delivered" })
	assert.Equal(t, first.Stats().DeadLettered+second.Stats().DeadLettered, 0, "dead letters that no handler has had")
}

// TestEntriesOfAPartitionThatNoHandlerHasHadCostNoDelivery stops a member while it handles the first of several messages of one aggregate.
func TestEntriesOfAPartitionThatNoHandlerHasHadCostNoDelivery(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) { // XCLAIM with JUSTID counts a delivery in miniredis
		const messages = 5
		p, book := newParted(t, client, 1), &handledBook{}
		p.publish(t, 1, 0, messages)
		cfg := p.config()
		cfg.MaxDeliveries = 1
		running, stop := context.WithCancel(redistest.Soon(t))
		defer stop()
		ch, err := p.subscriber(t, cfg).Subscribe(running)
		redistest.Must(t, err)
		msg := <-ch
		stop()
		book.ack(msg)
		for range ch { // until the member has left
			t.Error("a message was delivered after the end of the context")
		}
		p.join(t, cfg, book.ack)
		redistest.Eventually(t, "all to be acknowledged", func() bool { return p.open(t.Context()) == 0 })
		assert.Equal(t, client.XLen(t.Context(), stream.DeadLetterKey(p.keys()[0])).Val(), 0, "dead letters that no handler has had")
		book.wantInOrder(t, 1, messages)
	})
}
