package message_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/luatx/luatx/message"
)

func TestPositionIsOfTheAckingAndItsCopies(t *testing.T) {
	t.Parallel()
	at := message.Position{Source: "orders", Partition: "3", Offset: "007", Tenure: &message.Tenure{}}
	raw := message.NewRaw(nil, nil, message.NewAckingFrom(message.AckingConfig{Position: at}))
	for name, get := range map[string]func() (message.Position, bool){
		"the message": raw.Position,
		"a copy":      message.Copy(raw, any(1)).Position,
	} {
		if got, ok := get(); !ok || got != at {
			t.Errorf("the position of %s is %+v, %v", name, got, ok)
		}
	}
	if _, ok := message.New(nil, nil, message.NewAcking(nil, nil)).Position(); ok {
		t.Error("a message whose source keeps no order has a position")
	}
}

// ordered is a middleware that needs order.
func ordered() message.Middleware {
	return message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc { return next },
		message.Traits{Name: "inbox.Position", Inbox: true, Ordered: true})
}

// keeper is a subscriber that answers Ordered with its error.
type keeper struct{ err error }

func (keeper) Subscribe(context.Context) (<-chan *message.RawMessage, error) {
	ch := make(chan *message.RawMessage)
	close(ch)
	return ch, nil
}
func (k keeper) Ordered() error { return k.err }

// plain is a subscriber that keeps no order.
type plain struct{}

func (plain) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	return keeper{}.Subscribe(ctx)
}

func TestMiddlewareThatNeedsOrderIsCheckedAtStart(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		strategy   message.AckStrategy
		subscriber message.Subscriber
		middleware []message.Middleware
		want       string // empty if the Engine runs
	}{
		"a subscriber that keeps order":       {subscriber: keeper{}, middleware: []message.Middleware{ordered()}},
		"a plain one without the middleware":  {subscriber: plain{}},
		"a plain one":                         {subscriber: plain{}, middleware: []message.Middleware{ordered()}, want: `the subscriber of raw input "in" does not keep it: message_test.plain gives messages no position`},
		"one whose config loses the order":    {subscriber: keeper{errors.New("Concurrency is 4")}, middleware: []message.Middleware{ordered()}, want: "Concurrency is 4"},
		"AckManual":                           {strategy: message.AckManual, subscriber: keeper{}, middleware: []message.Middleware{ordered()}, want: "AckManual with inbox.Position"},
		"AckManual hidden in a chain":         {strategy: message.AckManual, subscriber: keeper{}, middleware: []message.Middleware{message.Chain(ordered())}, want: "AckManual with inbox.Position"},
		"AckManual and nothing that needs it": {strategy: message.AckManual, subscriber: plain{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := message.NewEngine(message.EngineConfig{Pipe: message.PipeConfig{AckStrategy: test.strategy}})
			if err := engine.Router().Use(test.middleware...); err != nil {
				t.Fatal(err)
			}
			if err := engine.AddSubscriber("in", nil, test.subscriber); err != nil {
				t.Fatal(err)
			}
			err := engine.Run(t.Context())
			unsafe, ok := errors.AsType[*message.WiringError](err)
			if test.want == "" {
				if err != nil {
					t.Errorf("Run returned %v", err)
				}
			} else if !ok || !strings.Contains(unsafe.Problem, test.want) || unsafe.Remedy == "" {
				t.Errorf("Run returned %v, want a *WiringError with %q", err, test.want)
			}
		})
	}
}

func TestTenureMakesEachValueOnce(t *testing.T) {
	t.Parallel()
	tenure, made := &message.Tenure{}, 0
	count := func() any { made++; return made }
	first, again, other := tenure.Value("a", count), tenure.Value("a", count), tenure.Value("b", count)
	if first != 1 || again != 1 || other != 2 {
		t.Errorf("the values are %v, %v and %v", first, again, other)
	}
}
