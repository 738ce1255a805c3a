package orders

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
)

// Service holds the parts that differ between services. The streams are the same.
type Service struct {
	Transactor *luatx.Transactor
	Middleware message.Middleware
	Handler    message.Handler
}

const (
	orderCount = 100
	customers  = 7
	patience   = time.Minute
)

// Main runs the service on its orders. It returns the exit status, which is 0 if each order was entered once.
func Main(args []string, out, errs io.Writer, service func(client redis.UniversalClient, namespace string) (Service, error)) int {
	flags := flag.NewFlagSet("swap", flag.ContinueOnError)
	flags.SetOutput(errs)
	addr := flags.String("redis", "", "`address` of a server; its keys begin with a namespace of their own and are deleted at the end (default an embedded server)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := show(ctx, *addr, out, service); err != nil {
		fmt.Fprintln(errs, "swap:", err)
		return 1
	}
	return 0
}

func show(ctx context.Context, addr string, out io.Writer, service func(redis.UniversalClient, string) (Service, error)) error {
	if addr == "" {
		server := miniredis.NewMiniRedis()
		if err := server.StartAddr("127.0.0.1:0"); err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(addr, ",")})
	defer func() { _ = client.Close() }() // the client is not used again
	namespace := "swap-" + strings.ToLower(rand.Text()[:8])
	s, err := service(client, namespace)
	if err != nil {
		return err
	}
	r := runner{client: client, service: s, keys: s.Transactor.Keyspace(), orders: makeOrders()}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = r.run(ctx)
	if err == nil {
		err = r.report(ctx, out)
	}
	return errors.Join(err, clean(context.WithoutCancel(ctx), client, namespace+":*"))
}

// makeOrders returns the orders. Some of them appear again at the end.
func makeOrders() []PlaceOrder {
	var list, again []PlaceOrder
	for i := range orderCount {
		order := PlaceOrder{fmt.Sprint("customer-", i%customers), fmt.Sprint("order-", i), int64(100 + 37*i%400)}
		list = append(list, order)
		if i%5 == 0 {
			again = append(again, order)
		}
	}
	return append(list, again...)
}

// report compares the book with the orders.
func (r *runner) report(ctx context.Context, out io.Writer) error {
	var entered, twice int
	var spent, want int64
	for _, order := range r.orders[:orderCount] {
		want += order.Pence
	}
	for i := range customers {
		n, more, sum, err := NewRedisBook(r.client, r.keys).read(ctx, fmt.Sprint("customer-", i))
		if err != nil {
			return err
		}
		entered, twice, spent = entered+n, twice+more, spent+sum
	}
	events, err := r.client.XLen(ctx, r.keys.TagKey(r.keys.Tags()[0], "events")).Result()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "messages          %d\norders entered    %d of %d\nentered twice     %d\nspent             %d of %d pence\nevents published  %d\n",
		len(r.orders), entered, orderCount, twice, spent, want, events)
	if entered != orderCount || twice != 0 || spent != want || events != orderCount {
		return errors.New("the book differs from the orders")
	}
	return nil
}

// clean deletes the keys of the run on an external server.
func clean(ctx context.Context, client redis.UniversalClient, pattern string) error {
	sweep := func(ctx context.Context, node redis.Cmdable) error {
		for iter := node.Scan(ctx, 0, pattern, 1000).Iterator(); ; {
			if !iter.Next(ctx) {
				return iter.Err()
			}
			if err := client.Unlink(ctx, iter.Val()).Err(); err != nil {
				return err
			}
		}
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error { return sweep(ctx, master) })
	}
	return sweep(ctx, client)
}
