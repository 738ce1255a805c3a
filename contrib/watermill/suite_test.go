package watermill_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/race"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/luatx/luatx/contrib/watermill"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// TestMain ignores a goroutine that the suite leaves behind.
func TestMain(m *testing.M) {
	redistest.Main(m, goleak.IgnoreTopFunction("github.com/ThreeDotsLabs/watermill/pubsub/tests.TestReconnect.func2"))
}

// TestPubSubPassesWatermillsSuite runs Watermill's own suite for a Pub/Sub on a server that is killed meanwhile. In short mode,
// and without LUATX_VERIFY, it sends fewer messages. ExactlyOnceDelivery is off, because an entry is delivered again after a
// lost reply or a crash; the Middleware makes it count once. NewSubscriberReceivesOldMessages is off, because it tests
// subscribers without a shared position, but a group has one. ContextPreserved is off, because a server only transports data.
// RequireSingleInstance would only skip tests.
func TestPubSubPassesWatermillsSuite(t *testing.T) {
	redistest.Need(t)
	server := redistest.Single(t, redistest.Own(), redistest.Config("appendonly yes", "appendfsync always"))
	client := server.Client(t, func(o *redis.Options) { o.PoolSize = 300 })
	features := tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true,
		ForceShort: os.Getenv("LUATX_VERIFY") == "",
	}
	if !race.On { // the suite's TestReconnect has a data race
		features.RestartServiceCommand = restarter(t, server)
	}
	in := func(t *testing.T, group string) (wm.Publisher, wm.Subscriber) {
		t.Helper()
		pub, err := watermill.NewPublisher(client, watermill.PublisherConfig{})
		redistest.Must(t, err)
		sub, err := watermill.NewSubscriber(client, watermill.SubscriberConfig{
			Group: group, BlockTimeout: 100 * time.Millisecond, ClaimInterval: time.Second, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond},
		})
		redistest.Must(t, err)
		t.Cleanup(func() { redistest.Must(t, errors.Join(pub.Close(), sub.Close())) })
		if strings.Contains(t.Name(), "/TestReconnect/") {
			return pub, late{sub, make(chan struct{})}
		}
		return pub, sub
	}
	tests.TestPubSub(t, features, func(t *testing.T) (wm.Publisher, wm.Subscriber) { return in(t, "group") }, in)
}

// late delays the last message of the suite's TestReconnect by a second. The test compares the received messages with a list to
// which a goroutine appends, and does not wait for that goroutine.
type late struct {
	*watermill.Subscriber
	closed chan struct{}
}

// published is the number of messages that TestReconnect publishes.
const published = 10_000

// Subscribe counts the messages by UUID, because some are delivered twice.
func (l late) Subscribe(ctx context.Context, topic string) (<-chan *wm.Message, error) {
	in, err := l.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *wm.Message)
	go func() {
		defer close(out)
		seen := make(map[string]bool)
		for msg := range in {
			seen[msg.UUID] = true
			if len(seen) == published {
				<-time.After(time.Second)
			}
			select {
			case out <- msg:
			case <-l.closed:
				return
			}
		}
	}()
	return out, nil
}

// Close also ends the subscriptions.
func (l late) Close() error {
	close(l.closed)
	return l.Subscriber.Close()
}

// restarter returns a command that makes this process kill and restart the server, by creating a file.
func restarter(t *testing.T, server *redistest.Server) []string {
	t.Helper()
	asked := filepath.Join(t.TempDir(), "restart")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := os.Stat(asked); err != nil {
				continue
			}
			if err := errors.Join(server.Kill(), server.Restart(ctx), os.Remove(asked)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	}()
	return []string{"sh", "-c", `touch "$0"; while [ -e "$0" ]; do sleep 0.05; done`, asked}
}
