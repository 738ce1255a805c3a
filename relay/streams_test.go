package relay_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

func TestStreamsOfAUserWithAWrongPasswordAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		client := redistest.Client(t, redistest.Shared(t).Addr(), func(o *redis.Options) {
			o.Username, o.Password, o.Protocol = "nobody", "wrong", protocol
		})
		publisher, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: redistest.Tag(t)})
		redistest.Must(t, err)
		errs := relay.Streams(publisher).Publish(t.Context(), rawEvents(2))
		if len(errs) != 2 {
			t.Fatalf("protocol %d: %d errors, want 2", protocol, len(errs))
		}
		for _, err := range errs {
			if !errors.Is(err, relay.ErrUnavailable) {
				t.Errorf("protocol %d: %v", protocol, err)
			}
		}
	}
}
