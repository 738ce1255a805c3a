package message_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/luatx/luatx/message"
)

// The first handler that takes a message gets it. Middlewares know the chosen handler.
func ExampleRouter() {
	handler := func(what string) message.Handler {
		return message.NewHandler(func(_ context.Context, msg *message.TypedMessage[PlaceOrder]) ([]*message.Message, error) {
			fmt.Println(what, msg.Data.Order)
			return nil, nil
		}, message.Named("place.order"))
	}
	router := message.NewRouter(message.PipeConfig{})
	err := errors.Join(
		router.Use(message.NewMiddleware(func(next message.ProcessFunc) message.ProcessFunc {
			return func(ctx context.Context, msg *message.Message) ([]*message.Message, error) {
				name, _ := message.HandlerNameFromContext(ctx)
				fmt.Print(name, ": ")
				return next(ctx, msg)
			}
		})),
		router.AddHandler("wholesale", message.MatchSource("/b2b"), handler("by the pallet:")),
		router.AddHandler("retail", nil, handler("by post:")),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, source := range []string{"/web", "/b2b"} {
		_, err := router.Process(context.Background(), message.New(PlaceOrder{Order: "o-7"}, message.Attributes{
			message.AttrID: "1", message.AttrSource: source, message.AttrType: "place.order",
		}, nil))
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// retail: by post: o-7
	// wholesale: by the pallet: o-7
}

// A handler that gets messages can set the attributes of its outputs.
func ExampleNewHandler() {
	accept := message.NewHandler(func(_ context.Context, msg *message.TypedMessage[PlaceOrder]) ([]*message.Message, error) {
		if msg.Data.Pence <= 0 {
			return nil, message.Permanent(errors.New("a price must be above 0")) // a redelivery cannot fix this
		}
		return []*message.Message{message.New(OrderAccepted{msg.Data.Order}, message.Attributes{
			message.AttrSource: "/shop", message.AttrType: "order.accepted", message.AttrSubject: msg.Data.Order,
		}, nil)}, nil
	})
	router := message.NewRouter(message.PipeConfig{})
	if err := router.AddHandler("accept", nil, accept); err != nil {
		fmt.Println(err)
		return
	}
	for _, data := range []string{`{"order": "o-7", "pence": 1250}`, `{"order": "o-8"}`} {
		out, err := router.Process(context.Background(), message.New([]byte(data), message.Attributes{
			message.AttrID: "1", message.AttrType: accept.EventType(),
		}, nil))
		for _, event := range out {
			fmt.Println(event.Type(), event.Subject())
		}
		fmt.Println(err, message.IsPermanent(err))
	}
	// Output:
	// order.accepted o-7
	// <nil> false
	// a price must be above 0 true
}
