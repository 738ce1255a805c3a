package relay

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Streams publishes to Redis Streams, of any slot: each event is added to the stream that its publisher names
// for it. From Redis 8.6 on a stream has an event once within stream.PublisherConfig.IdempotencyWindow. On older servers, and beyond
// the window, a consumer may see an event twice, with one id.
func Streams(publisher *stream.Publisher) Publisher {
	return PublisherFunc(func(ctx context.Context, events []*message.RawMessage) []error {
		errs := publisher.Send(ctx, events...)
		for i, err := range errs {
			if err != nil && brokers(err) {
				errs[i] = Unavailable(err)
			}
		}
		return errs
	})
}

// brokers reports whether an error speaks of the server rather than of the event.
func brokers(err error) bool {
	if message.IsPermanent(err) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true // the network
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	switch word {
	case "OOM", "READONLY", "NOREPLICAS", "MISCONF", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOAUTH", "NOPERM":
		return true
	}
	return false
}
