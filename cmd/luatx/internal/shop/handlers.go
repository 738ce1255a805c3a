package shop

import (
	"context"
	"errors"
	"time"

	"github.com/luatx/luatx/message"
)

// Books is where invoices are booked: on the customer's slot.
type Books interface {
	// Book adds an invoice and its pence to what a customer has ordered and spent.
	Book(ctx context.Context, invoice, customer string, pence int64) error
}

// Stock is where products are taken from: on the product's slot.
type Stock interface {
	// Take takes the units of an invoice's line off a product, or puts them back where they are negative.
	Take(ctx context.Context, invoice, code string, units int64) error
}

// LineSold says that a line of an invoice was sold. Equal lines of an invoice
// make equal events, which their positions tell apart: they are given no id.
type LineSold struct {
	Invoice string `json:"invoice"`
	Stock   string `json:"stock"`
	Units   int64  `json:"quantity"`
}

// HandlerConfig says what the handlers do beside their writes. Its zero value works.
type HandlerConfig struct {
	// Work is called before the writes, for the time that real handlers take.
	// Defaults to no work; see Pause.
	Work func(ctx context.Context) error
	// Destination names where the event of a sold stock code is published.
	// Defaults to no destination.
	Destination func(code string) string
}

func (c HandlerConfig) work(ctx context.Context) error {
	if c.Work == nil {
		return nil
	}
	return c.Work(ctx)
}

// BookInvoice handles invoices: it books one on its customer and returns one
// LineSold a line, whose subject is the stock code.
func BookInvoice(books Books, cfg HandlerConfig) message.Handler {
	book := func(ctx context.Context, order Order) ([]LineSold, error) {
		if order.Invoice == "" { // a message without data
			return nil, message.Permanent(errors.New("shop: no invoice in the message"))
		}
		if err := cfg.work(ctx); err != nil {
			return nil, err
		}
		if err := books.Book(ctx, order.Invoice, order.Customer, int64(order.Total())); err != nil {
			return nil, err
		}
		sold := make([]LineSold, len(order.Lines))
		for i, line := range order.Lines {
			sold[i] = LineSold{Invoice: order.Invoice, Stock: line.Stock, Units: line.Units}
		}
		return sold, nil
	}
	return message.NewCommandHandler(book, message.CommandHandlerConfig{
		Source:      EventSource,
		CommandType: TypeInvoice,
		Naming:      message.Named(TypeSold),
		Attributes: func(_, event any) message.Attributes {
			sold, _ := event.(LineSold) // it is one: book returns nothing else
			attrs := message.Attributes{message.AttrSubject: sold.Stock}
			if cfg.Destination != nil {
				attrs[message.AttrDestination] = cfg.Destination(sold.Stock)
			}
			return attrs
		},
	})
}

// TakeStock handles LineSold events: it takes the units off the product's stock.
func TakeStock(stock Stock, cfg HandlerConfig) message.Handler {
	take := func(ctx context.Context, msg *message.TypedMessage[LineSold]) ([]*message.Message, error) {
		if msg.Data.Stock == "" { // a message without data
			return nil, message.Permanent(errors.New("shop: no stock code in the message"))
		}
		if err := cfg.work(ctx); err != nil {
			return nil, err
		}
		return nil, stock.Take(ctx, msg.Data.Invoice, msg.Data.Stock, msg.Data.Units)
	}
	return message.NewHandler(take, message.Named(TypeSold))
}

// Pause returns work that takes so long, or ends with the context's error.
func Pause(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if d <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
