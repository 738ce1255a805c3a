package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

// A publisher sends signed webhooks, and a receiver verifies them.
func ExampleHTTP() {
	secret, err := cehttp.ParseSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	if err != nil {
		fmt.Println(err)
		return
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{secret}})
		for _, event := range events {
			fmt.Printf("received %s %s %s\n", event.ID(), event.Type(), event.Data)
		}
		w.WriteHeader(cehttp.Status(err)) // tells the relay how to continue
	}))
	defer receiver.Close()

	publisher, err := relay.HTTP(relay.HTTPConfig{URL: receiver.URL, Secrets: [][]byte{secret}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close()
	// A relay calls it: relay.New(transactor, publisher, relay.Config{}).
	errs := publisher.Publish(context.Background(), []*message.RawMessage{
		message.NewRaw([]byte(`{"total":5}`), message.Attributes{"id": "order-7", "source": "/shop", "type": "order.placed"}, nil),
	})
	fmt.Println(errs)
	// Output:
	// received order-7 order.placed {"total":5}
	// [<nil>]
}

// The first matching rule decides where an event goes. Each destination has its own limits.
func ExampleRoute() {
	sendMail := func(_ context.Context, event *message.RawMessage) error {
		fmt.Println("mail", event.ID())
		return nil
	}
	audit := func(_ context.Context, event *message.RawMessage) error {
		fmt.Println("audit", event.ID())
		return relay.Unavailable(errors.New("connection refused")) // costs no attempt; other destinations continue
	}
	mail, err := relay.Limit(relay.Func(sendMail, relay.FuncConfig{}), relay.LimitConfig{
		Rate:   50, // per second
		Tenant: func(event *message.RawMessage) string { return event.Source() },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := relay.Route(
		relay.Rule{Destination: "mail", To: mail},
		relay.Rule{Type: "order.placed", To: relay.Func(audit, relay.FuncConfig{})},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, destination := range []string{"mail", "", "fax"} {
		event := message.NewRaw(nil, message.Attributes{"id": "1", "source": "/shop", "type": "order.placed", "destination": destination}, nil)
		if destination == "fax" {
			event.Attributes["type"] = "order.faxed"
		}
		fmt.Println(publisher.Publish(context.Background(), []*message.RawMessage{event}))
	}
	// Output:
	// mail 1
	// [<nil>]
	// audit 1
	// [connection refused]
	// [relay: no rule takes the event: event "1" of type "order.faxed" for destination "fax"]
}
