package shop

import (
	"context"
	"errors"

	"github.com/luatx/luatx/message"
)

// Books records invoices and stock.
type Books interface {
	// Book adds an invoice and its pence to a customer's orders and spending, in the customer's slot.
	Book(ctx context.Context, invoice, customer string, pence int64) error
	// Take subtracts the units of an invoice's line from a product's stock, in the product's slot. Negative units are added.
	Take(ctx context.Context, invoice, code string, units int64) error
}

// LineSold is the event of a sold line of an invoice. Equal lines of an invoice have equal events. They have no id, because
// their positions distinguish them.
type LineSold struct {
	Invoice string `json:"invoice"`
	Stock   string `json:"stock"`
	Units   int64  `json:"quantity"`
}

// BookInvoice returns a handler of invoices. It books an invoice for its customer and returns one LineSold per line, with
// the stock code as subject. The function destination returns where the events of a stock code are published.
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
			sold, _ := event.(LineSold) // book returns nothing else
			return message.Attributes{message.AttrSubject: sold.Stock, message.AttrDestination: destination(sold.Stock)}
		},
	})
}

// TakeStock returns a handler of LineSold events. It subtracts the units from the product's stock.
func TakeStock(books Books) message.Handler {
	take := func(ctx context.Context, msg *message.TypedMessage[LineSold]) ([]*message.Message, error) {
		if msg.Data.Stock == "" { // a message without data
			return nil, message.Permanent(errors.New("shop: no stock code in the message"))
		}
		return nil, books.Take(ctx, msg.Data.Invoice, msg.Data.Stock, msg.Data.Units)
	}
	return message.NewHandler(take, message.Named(TypeSold))
}
