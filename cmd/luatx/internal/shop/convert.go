package shop

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/luatx/luatx/message"
)

// The CloudEvents attributes of the shop's messages.
const (
	EventSource = "/shop"
	TypeInvoice = "shop.invoice"
	TypeSold    = "shop.line.sold"
)

// ToMessage returns the CloudEvent that feeds an order to the shop. Its id is the invoice and its subject the customer.
func (o Order) ToMessage() (*message.RawMessage, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("invoice %s: %w", o.Invoice, err)
	}
	return message.NewRaw(data, message.Attributes{
		message.AttrID:              o.Invoice,
		message.AttrSource:          EventSource,
		message.AttrSpecVersion:     message.SpecVersion,
		message.AttrType:            TypeInvoice,
		message.AttrSubject:         o.Customer,
		message.AttrDataContentType: message.ContentTypeJSON,
	}, nil), nil
}

// FromMessage reads an order from a CloudEvent's data. It ignores the attributes.
func FromMessage(raw *message.RawMessage) (Order, error) {
	if len(raw.Data) == 0 {
		return Order{}, errors.New("the event has no data")
	}
	var order Order
	if err := json.Unmarshal(raw.Data, &order); err != nil {
		return Order{}, fmt.Errorf("data: %w", err)
	}
	return order, nil
}
