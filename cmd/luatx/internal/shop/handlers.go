package shop

import (
	"context"
	"errors"

	"github.com/luatx/luatx/message"
)

// Books is where invoices are booked and products are taken from.
type Books interface {
	// Book adds an invoice and its pence to what a customer has ordered and spent, on the customer's slot.
	Book(ctx context.Context, invoice, customer string, pence int64) error
	// Take takes the units of an invoice's line off a product, on the product's slot, or puts them back where they are negative.
	Take(ctx context.Context, invoice, code string, units int64) error
}

// LineSold says that a line of an invoice was sold. Equal lines of an invoice make equal events, which their positions tell
// apart: they are given no id.
type LineSold struct {
	Invoice string `json:"invoice"`
	Stock   string `json:"stock"`
	Units   int64  `json:"quantity"`
}

// BookInvoice handles invoices: it books one on its customer and returns one LineSold a line, whose subject is the stock code.
// The destination of a stock code is where its events are published.
func BookInvoice(books Books, destination func(code string) string) message.Handler {
	book := func(ctx context.Context, order Order) ([]LineSold, error) {
		if order.Invoice == "" { // a message without data
			return nil, message.Permanent(errors.New("shop: no invoice in the message"))
		}
		sold := make([]LineSold, len(order.Lines))
		for i, line := range order.Lines {
			sold[i] = LineSold{Invoice: order.Invoice, Stock: line.Stock, Units: line.Units}
		}
		return sold, books.Book(ctx, order.Invoice, order.Customer, int64(order.Total()))
	}
	return message.NewCommandHandler(book, message.CommandHandlerConfig{
		Source:      EventSource,
		CommandType: TypeInvoice,
		Naming:      message.Named(TypeSold),
		Attributes: func(_, event any) message.Attributes {
			sold, _ := event.(LineSold) // it is one: book returns nothing else
			return message.Attributes{message.AttrSubject: sold.Stock, message.AttrDestination: destination(sold.Stock)}
		},
	})
}

// TakeStock handles LineSold events: it takes the units off the product's stock.
func TakeStock(books Books) message.Handler {
	take := func(ctx context.Context, msg *message.TypedMessage[LineSold]) ([]*message.Message, error) {
		if msg.Data.Stock == "" { // a message without data
			return nil, message.Permanent(errors.New("shop: no stock code in the message"))
		}
		return nil, books.Take(ctx, msg.Data.Invoice, msg.Data.Stock, msg.Data.Units)
	}
	return message.NewHandler(take, message.Named(TypeSold))
}
