package main

import (
	"context"

	"github.com/luatx/luatx/message"
)

// PlaceOrder is a command.
type PlaceOrder struct {
	Customer, Order string
	Pence           int64
}

// OrderPlaced is an event.
type OrderPlaced struct {
	Order string
	Pence int64
}

// Book is the port of the handler.
type Book interface {
	// Place enters an order and adds its price to the customer's spending.
	Place(ctx context.Context, order PlaceOrder) error
}

// NewPlaceOrder returns the handler, which does not depend on a database.
func NewPlaceOrder(book Book) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, cmd PlaceOrder) ([]OrderPlaced, error) {
		if err := book.Place(ctx, cmd); err != nil {
			return nil, err
		}
		return []OrderPlaced{{cmd.Order, cmd.Pence}}, nil
	}, message.CommandHandlerConfig{Source: "/orders"})
}
