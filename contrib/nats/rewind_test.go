package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/contrib/nats"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// books is a ledger that a stream feeds.
type books struct {
	*brokertest.Ledger
	*broker
	operator *admin.Operator
	epochs   atomic.Int64 // epoch errors
}

func newBooks(t *testing.T) *books {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	ledger, err := brokertest.NewLedger(client, redistest.Namespace(t))
	redistest.Must(t, err)
	operator, err := admin.NewOperator(ledger.Transactor(), admin.OperatorConfig{Client: client, Name: "test"})
	redistest.Must(t, err)
	b := &books{Ledger: ledger, broker: newBroker(t), operator: operator}
	b.stream("in")
	return b
}

// publish publishes messages of account 0.
func (b *books) publish(from, to int) {
	b.t.Helper()
	for n := from; n < to; n++ {
		_, err := b.js.PublishMsg(b.t.Context(), &natsgo.Msg{Subject: "in.x", Data: fmt.Appendf(nil, `{"Number":%d}`, n), Header: natsgo.Header{
			"ce-specversion": {"1.0"}, "ce-id": {fmt.Sprint(n)}, "ce-source": {"/test"}, "ce-type": {"entry"}, "ce-subject": {brokertest.Account(0)},
		}})
		redistest.Must(b.t, err)
	}
}

// run runs the service until the test ends, or stop is called.
func (b *books) run() (stop func()) {
	b.t.Helper()
	cfg := nats.SubscriberConfig{
		Stream: "in", Durable: "service", Logger: slog.New(slog.DiscardHandler), NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
	}
	inOrder(&cfg)
	cfg.Consumer.AckWait = time.Second // after that, a message that was in flight at the stop is delivered again
	sub, err := nats.NewSubscriber(b.js, cfg)
	redistest.Must(b.t, err)
	engine, err := b.Engine(brokertest.Hooks{Failed: func(err error) {
		if _, ok := errors.AsType[*message.EpochError](err); ok {
			b.epochs.Add(1)
		}
	}}, sub)
	redistest.Must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *books) rewind(to string) {
	b.t.Helper()
	_, err := b.operator.Rewind(b.t.Context(), admin.Rewind{Scope: b.Namespace + "/enter", Source: "nats://in", Offset: to, Reason: "test"})
	redistest.Must(b.t, err)
}

func (b *books) wantList(want string) {
	b.t.Helper()
	if got := strings.Join(b.List(b.t, 0), " "); got != want {
		b.t.Errorf("the list is %s, want %s", got, want)
	}
}

func TestRewindAppliesMessagesBehindThePositionAgainOnce(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.publish(0, 6)
	stop := b.run()
	b.Await(t, 1, 6)
	stop()
	b.rewind(fmt.Sprintf("%020d", 4)) // sequences begin with 1
	redistest.Must(t, b.js.DeleteConsumer(t.Context(), "in", "service"))
	b.run()
	b.Await(t, 1, 8)
	b.publish(6, 7)
	b.Await(t, 1, 9)
	b.wantList("0 1 2 3 4 5 4 5 6")
}

func TestRunningSubscriptionContinuesAfterARewind(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.publish(0, 3)
	b.run()
	b.Await(t, 1, 3)
	for n := 3; n < 6; n++ {
		b.rewind(fmt.Sprintf("%020d", n)) // only the generation changes
		b.publish(n, n+1)
		b.Await(t, 1, n+1)
	}
	b.wantList("0 1 2 3 4 5")
}

func TestRecreatedStreamIsAnErrorUntilItsPositionIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.publish(0, 5)
	stop := b.run()
	b.Await(t, 1, 5)
	redistest.Must(t, b.js.DeleteStream(t.Context(), "in"))
	b.stream("in")
	b.publish(10, 13)
	redistest.Eventually(t, "the new epoch to be noticed", func() bool { return b.epochs.Load() > 0 })
	b.wantList("0 1 2 3 4")
	stop()
	b.rewind("")
	b.run()
	b.Await(t, 1, 8)
	b.wantList("0 1 2 3 4 10 11 12")
}
