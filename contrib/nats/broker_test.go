package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

func TestMain(m *testing.M) {
	if args, ok := brokertest.Member(); ok {
		fmt.Fprintln(os.Stderr, "the member ended:", memberMain(args))
		os.Exit(1)
	}
	redistest.Main(m)
}

var (
	next  = brokertest.Next
	event = brokertest.Event
)

// broker is an embedded server that can be stopped and restarted on the same port and files.
type broker struct {
	t    testing.TB
	opts server.Options
	js   jetstream.JetStream

	mu  sync.Mutex
	srv *server.Server
}

func newBroker(t testing.TB) *broker {
	t.Helper()
	b := &broker{t: t, opts: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, MaxPayload: 1 << 20}}
	b.start()
	t.Cleanup(b.stop)
	nc, err := natsgo.Connect(b.srv.ClientURL(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond), natsgo.ReconnectJitter(0, 0))
	redistest.Must(t, err)
	t.Cleanup(func() {
		closed := nc.StatusChanged(natsgo.CLOSED)
		nc.Close()
		<-closed
	})
	b.js, err = jetstream.New(nc)
	redistest.Must(t, err)
	return b
}

func (b *broker) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	opts := b.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		b.t.Error(err)
		return
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		b.t.Error("the server is not ready")
	}
	b.srv, b.opts.Port = srv, opts.Port
}

func (b *broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
}

// restart stops the server, starts a new one, and waits until the client has reconnected.
func (b *broker) restart() {
	b.t.Helper()
	b.stop()
	redistest.Eventually(b.t, "the client to notice", func() bool { return !b.js.Conn().IsConnected() })
	b.start()
	redistest.Eventually(b.t, "the client to connect again", b.js.Conn().IsConnected)
}

func (b *broker) stream(name string, change ...func(*jetstream.StreamConfig)) jetstream.Stream {
	b.t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
	for _, c := range change {
		c(&cfg)
	}
	var s jetstream.Stream
	redistest.Eventually(b.t, "the stream to be created", func() bool {
		var err error
		s, err = b.js.CreateStream(context.Background(), cfg)
		if failed, ok := errors.AsType[*jetstream.APIError](err); ok && failed.ErrorCode == storeFailed {
			return false // the server may still be deleting the files of an earlier stream
		}
		redistest.Must(b.t, err)
		return true
	})
	return s
}

// storeFailed is the code of JSStreamCreateErrF.
const storeFailed = 10049

// put publishes plain data.
func (b *broker) put(subject string, data ...string) {
	b.t.Helper()
	for _, d := range data {
		_, err := b.js.Publish(b.t.Context(), subject, []byte(d))
		redistest.Must(b.t, err)
	}
}

func (b *broker) publisher(change ...func(*nats.PublisherConfig)) *nats.Publisher {
	b.t.Helper()
	cfg := nats.PublisherConfig{AckTimeout: 2 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	p, err := nats.NewPublisher(b.js, cfg)
	redistest.Must(b.t, err)
	return p
}

// subscribe reads a stream. The function end returns after the channel is closed.
func (b *broker) subscribe(stream string, change ...func(*nats.SubscriberConfig)) (in <-chan *message.RawMessage, end func()) {
	b.t.Helper()
	cfg := nats.SubscriberConfig{
		Stream: stream, Durable: "service", Logger: slog.New(slog.DiscardHandler),
		NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
	}
	for _, c := range change {
		c(&cfg)
	}
	sub, err := nats.NewSubscriber(b.js, cfg)
	redistest.Must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	in, err = sub.Subscribe(ctx)
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		cancel()
		for msg := range in { // like a router
			msg.Nack(message.ErrStopped)
		}
	})
	b.t.Cleanup(end)
	return in, end
}

// pending returns how many messages of the consumer are delivered and not acknowledged, and how many are not delivered.
func (b *broker) pending(stream string) (unacked, waiting int) {
	b.t.Helper()
	c, err := b.js.Consumer(context.Background(), stream, "service")
	if errors.Is(err, natsgo.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return -1, -1
	}
	redistest.Must(b.t, err)
	info := c.CachedInfo()
	return info.NumAckPending, int(info.NumPending) //nolint:gosec // small
}
