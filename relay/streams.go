package relay

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Streams returns a Publisher that adds each event to a Redis stream, of any slot. The stream.Publisher chooses the stream
// of an event. On Redis 8.6 and later, a stream contains an event once within stream.PublisherConfig.IdempotencyWindow. On
// older servers, and after the window, a consumer may receive an event twice, with the same id.
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

// brokers reports whether an error is a failure of the server, not of the event.
func brokers(err error) bool {
	if message.IsPermanent(err) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true // the network failed
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	switch word {
	case "OOM", "READONLY", "NOREPLICAS", "MISCONF", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOAUTH", "WRONGPASS", "NOPERM",
		"MOVED", "ASK": // the client has followed as many redirections as it may
		return true
	}
	return strings.Contains(answer.Error(), "max number of clients")
}
