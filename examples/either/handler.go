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

// Book is what the handler needs.
type Book interface {
	// Place enters an order and adds it to what its customer has spent.
	Place(ctx context.Context, order PlaceOrder) error
}

// NewPlaceOrder returns the handler, which knows no database.
func NewPlaceOrder(book Book) message.Handler {
	return message.NewCommandHandler(func(ctx context.Context, cmd PlaceOrder) ([]OrderPlaced, error) {
		if err := book.Place(ctx, cmd); err != nil {
			return nil, err
		}
		return []OrderPlaced{{cmd.Order, cmd.Pence}}, nil
	}, message.CommandHandlerConfig{Source: "/orders"})
}
