// Command webhook sends the events of a service as CloudEvents to a receiver of signed webhooks, and shows two failures of
// the receiver. It is down for a while, which costs no attempts. It rejects one event, which is parked until an operator
// has repaired the receiver and re-arms it.
//
//	go run ./examples/webhook
//
// It runs on a Redis inside the process, or on REDIS_ADDRS=host:port. It prints
//
//	received order-1, order-3 after 3 answers 503
//	parked   order-2 after 1 attempt: http_422
//	re-armed 1 of 1
//	received order-2
//	a request that nobody has signed is answered 401
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/examples/internal/local"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/relay/cehttp"
)

// receiver is another party's service. It needs relay/cehttp, or any library for Standard Webhooks.
type receiver struct {
	secret   []byte
	down     atomic.Int64 // number of requests that still fail
	mended   atomic.Bool  // accepts order-2, too
	received chan string
}

func (rcv *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rcv.down.Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	events, err := cehttp.Read(w, r, cehttp.ReadConfig{Secrets: [][]byte{rcv.secret}})
	if err != nil {
		w.WriteHeader(cehttp.Status(err)) // tells the relay how to continue
		return
	}
	for _, event := range events { // one event, unless the request is a batch
		if event.Subject() == "order-2" && !rcv.mended.Load() {
			http.Error(w, "no such customer", http.StatusUnprocessableEntity)
			return
		}
		rcv.received <- event.Subject()
	}
	w.WriteHeader(http.StatusNoContent)
}

func main() { os.Exit(local.Main("webhook", run)) }

func run(ctx context.Context, out io.Writer) error {
	secret, err := cehttp.ParseSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	if err != nil {
		return err
	}
	rcv := &receiver{secret: secret, received: make(chan string, 10)}
	rcv.down.Store(3)
	receiving := httptest.NewServer(rcv)
	defer receiving.Close()

	server, err := local.Open("webhook", "")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	keys := luatx.Partitions(4).WithPrefix(server.Namespace)
	transactor, err := luatx.New(server.Client, luatx.Config{Namespace: server.Namespace, Keyspace: keys})
	if err != nil {
		return err
	}
	publisher, err := relay.HTTP(relay.HTTPConfig{URL: receiving.URL, Secrets: [][]byte{secret}})
	if err != nil {
		return err
	}
	defer publisher.Close()
	parked := make(chan string, 10)
	events, err := relay.New(transactor, publisher, relay.Config{
		PauseCap: 50 * time.Millisecond, // while the receiver is down
		Observer: relay.Observer{Settled: func(_ context.Context, s relay.Settled) {
			for _, event := range s.Parked {
				parked <- event.ID
			}
		}},
	})
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); work.Wait() }()
	work.Go(func() { _ = events.Run(ctx) })

	store := outbox.NewStore(transactor)
	for _, id := range []string{"order-1", "order-2", "order-3"} { // usually the outputs of a handler
		placed := message.New(map[string]string{"order": id}, message.Attributes{"id": id, "source": "/shop", "type": "order.placed", "subject": id}, nil)
		if _, err := store.Enqueue(ctx, id, placed); err != nil {
			return err
		}
	}
	got := []string{<-rcv.received, <-rcv.received}
	slices.Sort(got)
	fmt.Fprintf(out, "received %s after 3 answers 503\n", strings.Join(got, ", "))
	<-parked
	for event, err := range store.Parked(ctx, outbox.Filter{}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "parked   %s after %d attempt: %s\n", event.ID, event.Attempts, event.Class)
	}
	rcv.mended.Store(true)
	result, err := store.As("ada").RearmAll(ctx, outbox.Filter{Class: "http_422"}, outbox.RearmOptions{}) // or: luatx parked rearm
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "re-armed %d of %d\nreceived %s\n", result.Rearmed, result.Matched, <-rcv.received)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, receiving.URL, strings.NewReader(`{"specversion":"1.0"}`))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "a request that nobody has signed is answered %d\n", resp.StatusCode)
	return resp.Body.Close()
}
