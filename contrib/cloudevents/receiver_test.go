package cloudevents_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cecontext "github.com/cloudevents/sdk-go/v2/context"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/protocol"
	sdkhttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/contrib/cloudevents"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// receiving runs a Receiver on a free port.
func receiving(t *testing.T, cfg cloudevents.ReceiverConfig) (r *cloudevents.Receiver, send func(event.Event) protocol.Result, stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	r, err = cloudevents.NewReceiver(httpClient(t, sdkhttp.WithListener(listener), sdkhttp.WithShutdownTimeout(5*time.Second)), cfg)
	redistest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	sender := httpClient(t)
	send = func(e event.Event) protocol.Result {
		return sender.Send(cecontext.WithTarget(context.Background(), "http://"+listener.Addr().String()), e)
	}
	return r, send, func() {
		cancel()
		redistest.Must(t, <-ended)
	}
}

func command(t *testing.T, id string) event.Event {
	t.Helper()
	e := event.New()
	e.SetID(id)
	e.SetSource("/shop")
	e.SetType("order")
	e.SetSubject("a")
	redistest.Must(t, e.SetData(event.ApplicationJSON, map[string]int{"n": 1}))
	return e
}

// TestReceiverAppliesEachCommandOnceBeforeItsResponse is a service. The SDK's client sends commands over HTTP, and each runs in
// a transaction. Each command is sent twice.
func TestReceiverAppliesEachCommandOnceBeforeItsResponse(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	ns := redistest.Namespace(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: ns, Keyspace: luatx.Partitions(1).WithPrefix(ns)})
	redistest.Must(t, err)
	counts, err := tr.Keyspace().Key("a", "counts")
	redistest.Must(t, err)
	r, send, stop := receiving(t, cloudevents.ReceiverConfig{})
	var failed atomic.Bool
	engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{Concurrency: 4, ErrorHandler: func(context.Context, *message.Message, error) {}}})
	redistest.Must(t, errors.Join(
		engine.Router().Use(luatx.Middleware(tr), inbox.Middleware(inbox.Config{Scope: "orders"})),
		engine.AddHandler("order", nil, order{func(ctx context.Context, in *message.Message) error {
			switch {
			case in.ID() == "broken":
				return message.Permanent(errors.New("never"))
			case in.ID() == "flaky" && failed.CompareAndSwap(false, true):
				return errors.New("not yet")
			}
			return luatx.Queued(luatx.CmdableFromContext(ctx, client).HIncrBy(ctx, counts, in.ID(), 1))
		}}),
		engine.AddRawInput("commands", nil, r.Messages()),
	))
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(context.WithoutCancel(t.Context())) }()

	for i := range 20 {
		result := send(command(t, fmt.Sprint(i%10)))
		if !protocol.IsACK(result) {
			t.Errorf("%d: %v", i, result)
		}
		if n := client.HGet(t.Context(), counts, fmt.Sprint(i%10)).Val(); n != "1" { // the response follows the commit
			t.Errorf("%d was answered, and has counted %q times", i%10, n)
		}
	}
	statuses := map[string]int{"broken": 422, "flaky": 500}
	for id, want := range statuses {
		var status *sdkhttp.Result
		if result := send(command(t, id)); protocol.IsACK(result) || !protocol.ResultAs(result, &status) || status.StatusCode != want {
			t.Errorf("%s: %v", id, result)
		}
	}
	if result := send(command(t, "flaky")); !protocol.IsACK(result) {
		t.Errorf("the second time: %v", result)
	}
	stop()
	redistest.Must(t, <-ended)
}

type order struct {
	handle func(context.Context, *message.Message) error
}

func (order) EventType() string { return "order" }
func (order) NewInput() any     { return new([]byte) }
func (o order) Handle(ctx context.Context, in *message.Message) ([]*message.Message, error) {
	return nil, o.handle(ctx, in)
}

// TestReceiverRespondsToUnsettledEvents covers events that are not received, not settled, or interrupted by the end.
func TestReceiverRespondsToUnsettledEvents(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		timeout time.Duration
		settle  func(*message.RawMessage) // nil: nothing receives the event
		status  int
	}{
		"nobody takes it":   {50 * time.Millisecond, nil, 503},
		"nobody settles it": {50 * time.Millisecond, func(*message.RawMessage) {}, 503},
		"released":          {0, func(m *message.RawMessage) { m.Release() }, 503},
		"later":             {0, func(m *message.RawMessage) { m.Nack(message.RetryAfter(errors.New("later"), time.Second)) }, 503},
		"nacked":            {0, func(m *message.RawMessage) { m.Nack(nil) }, 500},
		"for good":          {0, func(m *message.RawMessage) { m.Nack(message.Permanent(errors.New("never"))) }, 422},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, send, stop := receiving(t, cloudevents.ReceiverConfig{Timeout: test.timeout})
			var taking sync.WaitGroup
			if test.settle != nil {
				taking.Go(func() {
					if m, open := <-r.Messages(); open {
						test.settle(m)
					}
				})
			}
			var status *sdkhttp.Result
			if result := send(command(t, "1")); !protocol.IsNACK(result) || !protocol.ResultAs(result, &status) || status.StatusCode != test.status {
				t.Errorf("told %v instead of %d", result, test.status)
			}
			stop()
			taking.Wait()
			if _, open := <-r.Messages(); open {
				t.Error("a message came after the end")
			}
		})
	}
	if _, err := cloudevents.NewReceiver(nil, cloudevents.ReceiverConfig{}); err == nil {
		t.Error("a Receiver without a client")
	}
}
