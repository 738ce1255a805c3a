package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// class is a kind of failure, with the number of its events and the error of their publisher.
type class struct {
	name, kind, destination, text string
	events                        int
}

// classes are those of 10,000 events.
var classes = []class{
	{"http_503", "order.paid", "bank", "POST https://bank.example/v1/payments: 503 Service Unavailable", 4310},
	{"http_422", "order.shipped", "carrier", "POST https://carrier.example/labels: 422: postcode 1200 does not belong to Geneva-Airport", 2400},
	{"timeout", "order.paid", "ledger", "context deadline exceeded after 10s", 1429},
	{"http_409", "invoice.issued", "billing", "POST https://billing.example/invoices: 409: the number is taken", 980},
	{"tls", "stock.reserved", "warehouse", "tls: failed to verify certificate: x509: certificate has expired", 611},
	{"http_401", "mail.queued", "mail", "POST https://mail.example/send: 401: the key was revoked", 240},
	{"too_large", "order.exported", "archive", "413: 1,204,311 bytes are more than 1 MiB", 30},
}

// service is a service with its console, and with a relay whose publisher fails for some events.
type service struct {
	tr      *luatx.Transactor
	store   *outbox.Store
	address string
	outage  time.Time // when the history has the outage of a destination

	mu     sync.Mutex
	broken map[string]class // by type and destination
	sent   map[string]int   // by class
}

// newService starts a service with the parked events of the classes, or with a fraction 1/oneOf of them.
func newService(t testing.TB, oneOf int) *service {
	t.Helper()
	client := redistest.Single(t, redistest.Own()).Client(t)
	tr, err := shop(client)
	redistest.Must(t, err)
	s := &service{tr: tr, store: outbox.NewStore(tr), broken: map[string]class{}, sent: map[string]int{}}
	for _, c := range classes {
		s.broken[c.kind+" "+c.destination] = c
	}
	admintest.Relay(t, tr, s.publish)
	s.fill(t, oneOf)
	now, err := client.Time(t.Context()).Result()
	redistest.Must(t, err)
	s.outage = now.UTC().Add(-5 * time.Hour).Truncate(15 * time.Minute)
	admintest.History(t, client, tr, s.outage)
	s.serve(t, client)
	return s
}

func (s *service) fill(t testing.TB, oneOf int) {
	t.Helper()
	want := int64(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range classes {
		batches := map[string][]luatx.Event{}
		events := max(3, c.events/oneOf)
		for i := range events {
			id := fmt.Sprintf("%s-%05d", c.destination, i)
			body, err := message.NewTyped(fmt.Appendf(nil, `{"order":%d,"customer":{"name":"Ada L.","city":"Geneva"},"lines":[{"sku":"A-%d","n":2}],"total":"%d.50"}`, i, i%97, i%400), message.Attributes{
				"specversion": "1.0", "id": id, "type": c.kind, "source": "/shop/orders", "destination": c.destination,
				"subject": fmt.Sprintf("order/%d", i), "datacontenttype": "application/json", "time": "2026-01-05T09:30:00Z",
			}, nil).MarshalJSON()
			redistest.Must(t, err)
			aggregate := fmt.Sprintf("order-%d", i%64)
			batches[aggregate] = append(batches[aggregate], luatx.Event{ID: id, Body: body})
		}
		for aggregate, events := range batches {
			_, err := s.tr.Enqueue(ctx, aggregate, events...)
			redistest.Must(t, err)
		}
		want += int64(events)
	}
	redistest.Eventually(t, "the events to be parked", func() bool {
		now, err := s.store.Counts(ctx)
		return err == nil && now.Parked == want
	})
}

// publish rejects an event whose type and destination are set to fail, and counts any other as sent.
func (s *service) publish(e *message.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := e.Type() + " " + e.Destination()
	if c, broken := s.broken[key]; broken {
		return relay.Classify(c.name, message.Permanent(errors.New(c.text)))
	}
	s.sent[key]++
	return nil
}

// mend removes the cause of a class.
func (s *service) mend(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.broken {
		if c.name == name {
			delete(s.broken, key)
		}
	}
}

// published returns the number of published events of a class.
func (s *service) published(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range classes {
		if c.name == name {
			return s.sent[c.kind+" "+c.destination]
		}
	}
	return 0
}

func (s *service) serve(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	op, err := admin.NewOperator(s.tr, admin.OperatorConfig{Client: client, Name: "ada"})
	redistest.Must(t, err)
	h, err := httpapi.New(op, httpapi.Config{
		Console: console.New,
		Authorize: func(*http.Request) (httpapi.Identity, error) {
			return httpapi.Identity{Name: "ada", May: httpapi.MayPurge, Payloads: true}, nil
		},
		Title: "shop · staging", Streams: []string{"orders"}, Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(t, err)
	admintest.Running(t, h.Run)
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", h))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.address = server.URL + "/ops/"
}
