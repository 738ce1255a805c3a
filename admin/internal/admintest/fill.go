package admintest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// Load is the number of events of a service in each state.
type Load struct {
	Sent, Parked, Retrying, Scheduled, Due int
	// Keys is the number of blocked ordering keys, and Behind the number of events behind the parked one of each.
	Keys, Behind int
}

// LoadOf distributes n events over the states, 50 blocked ordering keys among them.
func LoadOf(n int) Load {
	l := Load{Sent: n / 5, Retrying: n / 10, Scheduled: n / 10, Due: n / 10, Keys: 50, Behind: n / 250}
	l.Parked = n - l.Sent - l.Retrying - l.Scheduled - l.Due - l.Keys*(l.Behind+1)
	return l
}

// failures are the classes of parked events, with the destination and the error of each.
var failures = []struct{ class, destination, text string }{
	{"http_503", "bank", "POST https://bank.example/v1/payments: 503 Service Unavailable"},
	{"http_422", "carrier", "POST https://carrier.example/labels: 422: the postcode is unknown"},
	{"timeout", "ledger", "context deadline exceeded after 10s"},
}

// Fill gives a service the events of a load, in the shards of 64 aggregates.
func Fill(t testing.TB, tr *luatx.Transactor, l Load) {
	t.Helper()
	hour := time.Now().Add(time.Hour)
	put := func(n int, name, destination string, at time.Time, fate shard.Settlement) {
		for i := range 64 {
			fillShard(t, tr, i, (n+63-i)/64, name, destination, luatx.Event{At: at}, fate)
		}
	}
	put(l.Sent, "sent", "bank", time.Time{}, shard.Settlement{What: "sent"})
	put(l.Retrying, "retrying", "bank", time.Time{}, shard.Settlement{What: "failed", Number: 0.99, Class: failures[0].class, Error: failures[0].text})
	put(l.Scheduled, "scheduled", "bank", hour, shard.Settlement{})
	put(l.Due, "due", "bank", time.Time{}, shard.Settlement{})
	for i, f := range failures {
		n := l.Parked / len(failures)
		if i == 0 {
			n = l.Parked - (len(failures)-1)*n
		}
		put(n, "parked-"+f.destination, f.destination, time.Time{}, shard.Settlement{What: "parked", Class: f.class, Error: f.text})
	}
	for i := range l.Keys {
		ordered := luatx.Event{Key: fmt.Sprintf("customer-%d", i)}
		fillShard(t, tr, i%64, 1, fmt.Sprint("head-", i), "carrier", ordered, shard.Settlement{What: "parked", Class: failures[1].class, Error: failures[1].text})
		fillShard(t, tr, i%64, l.Behind, fmt.Sprint("behind-", i), "carrier", ordered, shard.Settlement{})
	}
}

// fillBatch is the most events that one script adds or settles.
const fillBatch = 500

// fillShard adds n events like one to the shard of an aggregate, and settles them if fate says how.
func fillShard(t testing.TB, tr *luatx.Transactor, aggregate, n int, name, destination string, like luatx.Event, fate shard.Settlement) {
	t.Helper()
	home := fmt.Sprint("order-", aggregate)
	slot, err := outbox.NewStore(tr).Slot(home)
	Must(t, err)
	scripts := link.Of(tr).Scripts
	for begin := 0; begin < n; begin += fillBatch {
		events := make([]luatx.Event, min(fillBatch, n-begin))
		fates := make([]shard.Settlement, len(events))
		for i := range events {
			like.ID = fmt.Sprintf("%s-%d-%d", name, aggregate, begin+i)
			like.Body = fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"type":"order.paid","source":"/shop/orders","destination":%q,"subject":"order/%d","datacontenttype":"application/json","data":{"order":%d,"customer":{"name":"Ada L.","city":"Geneva"}}}`,
				like.ID, destination, begin+i, begin+i)
			events[i], fates[i] = like, fate
			fates[i].ID = like.ID
		}
		_, err := tr.Enqueue(redistest.Soon(t), home, events...)
		Must(t, err)
		if fate.What == "" {
			continue
		}
		_, err = scripts.Settle(redistest.Soon(t), scripts.Shard(slot), shard.Settling{Attempts: 10, Base: time.Hour, Cap: time.Hour, Retention: time.Hour}, fates)
		Must(t, err)
	}
}

// FillMore gives a service 1,000 timers, 1,000 dead letters of a stream, and three processes that hold leases and partitions.
func FillMore(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, stream string) {
	t.Helper()
	timers, err := expiry.New(tr, expiry.Config{})
	Must(t, err)
	for i := range 1000 {
		Must(t, timers.Record(redistest.Soon(t), fmt.Sprint("ticket-", i), time.Now().Add(time.Duration(i-500)*time.Second)))
	}
	DeadLetters(t, client, stream, "billing", "no such bank", 1000)
	for _, kind := range []string{process.Relay, process.Consumer, process.Trigger} {
		Register(t, tr, kind, process.Report{Stream: stream, Group: "billing", InFlight: 3})
	}
}

// Loaded returns a service with n events in all states and everything that FillMore adds, on a server of its own, and the key of its
// stream.
func Loaded(t testing.TB, n int) (client redis.UniversalClient, tr *luatx.Transactor, op *admin.Operator, stream string) {
	t.Helper()
	redistest.Need(t)
	client = redistest.Single(t, redistest.Own()).Client(t)
	tr, op = Service(t, client, 16)
	stream = "{" + redistest.Tag(t) + "}:orders"
	Fill(t, tr, LoadOf(n))
	FillMore(t, client, tr, stream)
	return client, tr, op, stream
}
