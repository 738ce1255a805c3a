package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/service"
)

// store holds the parts that differ between the stores.
type store struct {
	client redis.UniversalClient // nil with SQL
	book   interface {
		Book
		Spent(ctx context.Context, customer string) (orders int, pence int64, err error)
	}
	// config returns the service's configuration except its input.
	config func(publisher relay.Publisher) service.Config
	close  func() error
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
	kind := flags.String("store", "redis", "where the service keeps its state: redis or sql")
	addr := flags.String("redis", "", "`address` of a Redis server (default one inside this process)")
	dsn := flags.String("dsn", "", "`DSN` of PostgreSQL, or mysql:// and that of MySQL or MariaDB (default SQLite in a temporary file)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var s store
	var err error
	switch *kind {
	case "redis":
		s, err = onRedis(*addr)
	case "sql":
		s, err = onSQL(ctx, *dsn)
	default:
		err = fmt.Errorf("-store is %q: use redis or sql", *kind)
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

// run runs the service until its orders are acknowledged and their events published, and prints the results.
func (s store) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	published, in := newBroker(orderCount), &orders{}
	cfg := s.config(published)
	cfg.Given.Input = service.Subscription{Subscriber: in, Workers: 1}
	book, err := service.New(s.client, cfg, service.Handler{Name: "place-order", Handler: NewPlaceOrder(s.book)})
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- book.Run(work) }()
	err = published.wait(ctx)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return s.report(ctx, out, int(in.acked.Load()), published.count())
}

// orders is the input. It delivers every fifth order twice.
type orders struct{ acked atomic.Int64 }

// Subscribe implements message.Subscriber.
func (o *orders) Subscribe(ctx context.Context) (<-chan *message.RawMessage, error) {
	out := make(chan *message.RawMessage)
	go func() {
		defer close(out)
		for i := range orderCount {
			order := PlaceOrder{fmt.Sprint("customer-", i%customers), fmt.Sprint("order-", i), pence(i)}
			data, _ := json.Marshal(order)
			for range 1 + (5-i%5)/5 {
				msg := message.NewRaw(data, message.Attributes{
					message.AttrID: order.Order, message.AttrSource: "/shop", message.AttrType: "place.order", message.AttrSubject: order.Customer,
				}, message.NewAcking(func() { o.acked.Add(1) }, nil))
				select {
				case out <- msg:
				case <-ctx.Done():
					return
				}
			}
		}
		<-ctx.Done()
	}()
	return out, nil
}

func pence(i int) int64 { return int64(100 + 37*i%400) }

// report compares the book with the orders.
func (s store) report(ctx context.Context, out io.Writer, delivered, events int) error {
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
		return errors.New("the book differs from the orders")
	}
	return nil
}

// broker receives the published events and counts them by id.
type broker struct {
	want int
	all  chan struct{} // closed when it has all of them

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
