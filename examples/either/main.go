package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
)

// service is what differs between the stores.
type service struct {
	middleware message.Middleware
	book       interface {
		Book
		Spent(ctx context.Context, customer string) (orders int, pence int64, err error)
	}
	publish func(ctx context.Context, publisher relay.Publisher) error
	close   func() error
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "either:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("either", flag.ContinueOnError)
	store := flags.String("store", "redis", "where the service keeps its state: redis or sql")
	addr := flags.String("redis", "", "`address` of a Redis server (default one inside this process)")
	dsn := flags.String("dsn", "", "`DSN` of PostgreSQL, or mysql:// and that of MySQL or MariaDB (default SQLite in a temporary file)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var s service
	var err error
	switch *store {
	case "redis":
		s, err = onRedis(*addr)
	case "sql":
		s, err = onSQL(ctx, *dsn)
	default:
		err = fmt.Errorf("-store is %q: use redis or sql", *store)
	}
	if err != nil {
		return err
	}
	return errors.Join(s.run(ctx, out), s.close())
}

const (
	orderCount = 100
	customers  = 7
)

// run hands the service its orders, waits until their events are published, and says what came of them.
func (s service) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	router := message.NewRouter(message.PipeConfig{})
	if err := errors.Join(router.Use(s.middleware), router.AddHandler("place-order", nil, NewPlaceOrder(s.book))); err != nil {
		return err
	}
	published := newBroker(orderCount)
	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.publish(work, published) }()
	delivered, err := deliver(ctx, router)
	if err == nil {
		err = published.wait(ctx)
	}
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return s.report(ctx, out, delivered, published.count())
}

// deliver hands over the orders, every fifth of them twice.
func deliver(ctx context.Context, router *message.Router) (delivered int, err error) {
	for i := range orderCount {
		order := PlaceOrder{fmt.Sprint("customer-", i%customers), fmt.Sprint("order-", i), pence(i)}
		for range 1 + (5-i%5)/5 {
			msg := message.New(order, message.Attributes{
				message.AttrID: order.Order, message.AttrSource: "/shop", message.AttrType: "place.order", message.AttrSubject: order.Customer,
			}, nil)
			if _, err := router.Process(ctx, msg); err != nil {
				return delivered, err
			}
			delivered++
		}
	}
	return delivered, nil
}

func pence(i int) int64 { return int64(100 + 37*i%400) }

// report compares the book with the orders.
func (s service) report(ctx context.Context, out io.Writer, delivered, events int) error {
	var orders int
	var spent, want int64
	for i := range orderCount {
		want += pence(i)
	}
	for i := range customers {
		n, sum, err := s.book.Spent(ctx, fmt.Sprint("customer-", i))
		if err != nil {
			return err
		}
		orders, spent = orders+n, spent+sum
	}
	fmt.Fprintf(out, "messages          %d\norders entered    %d of %d\nspent             %d of %d pence\nevents published  %d\n",
		delivered, orders, orderCount, spent, want, events)
	if orders != orderCount || spent != want || events != orderCount {
		return errors.New("the book is not what the orders say")
	}
	return nil
}

// broker is where events are published: it counts them, by id.
type broker struct {
	want int
	all  chan struct{} // closed when it has them all

	mu  sync.Mutex
	ids map[string]bool
}

func newBroker(want int) *broker {
	return &broker{want: want, all: make(chan struct{}), ids: map[string]bool{}}
}

// Publish implements relay.Publisher.
func (b *broker) Publish(_ context.Context, events []*message.RawMessage) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.ids)
	for _, event := range events {
		b.ids[event.ID()] = true
	}
	if before < b.want && len(b.ids) >= b.want {
		close(b.all)
	}
	return nil
}

func (b *broker) wait(ctx context.Context) error {
	select {
	case <-b.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d events were published: %w", b.count(), b.want, context.Cause(ctx))
	}
}

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ids)
}
