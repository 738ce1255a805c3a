package cloudevents_test

import (
	"fmt"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/luatx/luatx/contrib/cloudevents"
	"github.com/luatx/luatx/message"
)

func ExampleToEvent() {
	msg := message.NewRaw([]byte(`{"total":5}`), message.Attributes{
		"id": "1", "source": "/shop", "type": "order.placed", "subject": "order-7", "datacontenttype": "application/json",
	}, nil)
	e, err := cloudevents.ToEvent(msg)
	if err != nil {
		fmt.Println(err)
		return
	}
	var order struct{ Total int }
	fmt.Println(e.Type(), e.Subject(), e.DataAs(&order), order.Total)
	// Output: order.placed order-7 <nil> 5
}

func ExampleOutboxEvent() {
	e := event.New()
	e.SetID("1")
	e.SetSource("/shop")
	e.SetType("order.placed")
	if err := e.SetData(event.ApplicationJSON, map[string]int{"total": 5}); err != nil {
		fmt.Println(err)
		return
	}
	waiting, err := cloudevents.OutboxEvent(e) // for Tx.Emit or Transactor.Enqueue
	if err != nil {
		fmt.Println(err)
		return
	}
	back, err := cloudevents.FromOutbox(waiting)
	fmt.Println(waiting.ID, string(back.Data()), err)
	// Output: 1 {"total":5} <nil>
}
