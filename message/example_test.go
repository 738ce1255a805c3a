package message_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/message"
)

type PlaceOrder struct {
	Order string `json:"order"`
	Pence int64  `json:"pence"`
}

type OrderAccepted struct {
	Order string `json:"order"`
}

// A Router passes a command to its handler, which does not use messages, and acks it after everything has succeeded.
func Example() {
	accept := message.NewCommandHandler(func(_ context.Context, cmd PlaceOrder) ([]OrderAccepted, error) {
		return []OrderAccepted{{Order: cmd.Order}}, nil
	}, message.CommandHandlerConfig{
		Source: "/shop",
		Attributes: func(_, event any) message.Attributes {
			return message.Attributes{message.AttrSubject: event.(OrderAccepted).Order}
		},
	})
	router := message.NewRouter(message.PipeConfig{})
	if err := router.AddHandler("accept", nil, accept); err != nil {
		fmt.Println(err)
		return
	}

	in := message.New(
		[]byte(`{"order": "o-7", "pence": 1250}`),
		message.Attributes{message.AttrID: "1", message.AttrType: "place.order"},
		message.NewAcking(func() { fmt.Println("acked") }, func(err error) { fmt.Println("nacked:", err) }),
	)
	outs, err := router.Process(context.Background(), in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, out := range outs {
		fmt.Println(out.Type(), out.Subject(), "because of", out.CorrelationID())
	}
	// Output:
	// acked
	// order.accepted o-7 because of 1
}

// An Engine connects channels of encoded messages.
func ExampleEngine() {
	in := make(chan *message.RawMessage, 1)
	engine := message.NewEngine(message.EngineConfig{})
	out, err := engine.AddRawOutput("accepted", message.MatchType("order.accepted"))
	err = errors.Join(err,
		engine.AddRawInput("orders", nil, in),
		engine.AddHandler("accept", nil, message.NewCommandHandler(
			func(_ context.Context, cmd PlaceOrder) ([]OrderAccepted, error) {
				return []OrderAccepted{{Order: cmd.Order}}, nil
			}, message.CommandHandlerConfig{})),
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	in <- message.NewRaw([]byte(`{"order":"o-7"}`), message.Attributes{message.AttrType: "place.order"}, nil)
	close(in)
	done := make(chan error)
	go func() { done <- engine.Run(context.Background()) }()
	for raw := range out {
		fmt.Println(raw.Source(), raw.Type(), string(raw.Data))
	}
	fmt.Println(<-done)
	// Output:
	// /accept order.accepted {"order":"o-7"}
	// <nil>
}

// The first settlement wins.
func ExampleTypedMessage_Ack() {
	msg := message.New("data", nil, message.NewAcking(func() { fmt.Println("acked") }, nil))
	fmt.Println(msg.Ack())
	fmt.Println(msg.Nack(errors.New("too late")))
	// Output:
	// acked
	// true
	// false
}

// Several outputs settle one input.
func ExampleNewSharedAcking() {
	shared := message.NewSharedAcking(2, func() { fmt.Println("both acked") }, nil)
	one, two := message.New(1, nil, shared), message.New(2, nil, shared)
	one.Ack()
	fmt.Println("one acked")
	two.Ack()
	// Output:
	// one acked
	// both acked
}

// A structured CloudEvent contains JSON data unchanged.
func ExampleTypedMessage_MarshalJSON() {
	raw := message.NewRaw([]byte(`{"price": 1.50}`), message.Attributes{
		message.AttrID: "1", message.AttrSource: "/shop", message.AttrType: "order.accepted",
	}, nil)
	text, err := raw.MarshalJSON()
	fmt.Println(string(text), err)
	// Output:
	// {"specversion":"1.0","id":"1","source":"/shop","type":"order.accepted","data":{"price": 1.50}} <nil>
}

// An error can request how its source delivers the message again, if at all.
func ExampleRetryAfter() {
	err := message.RetryAfter(errors.New("rate limited"), 30*time.Second)
	fmt.Println(message.RetryDelay(err))
	fmt.Println(message.IsPermanent(err))
	// Output:
	// 30s true
	// false
}
