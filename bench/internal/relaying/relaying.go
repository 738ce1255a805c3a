// Package relaying measures what happens to events after their commit: how fast a relay drains a backlog, how long after
// the commit an event is published, what the sweep costs, and what grows.
package relaying

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// Group returns the group of these measurements.
func Group() suite.Group { return suite.Group{Name: "relay", Run: run} }

const intro = `This section measures the handling of events after their commit. The publisher of the relays discards the events, so the figures
show only the cost of the queue: reading events and recording which of them were sent. A *relay* counts attempts, holds leases,
decodes every event, and remembers the ids that callers gave. The loops over a stream do none of that.`

// part is one measurement of the group, which adds its result to the report.
type part struct {
	name string
	run  func(ctx context.Context, env suite.Env, b *bed, report *suite.Report) error
}

func run(ctx context.Context, env suite.Env) (report suite.Report, err error) {
	report = suite.Report{Title: "Relay, inbox and growth", Intro: intro, Notes: bucketed, Figures: map[string]measure.Spread{}}
	for _, p := range []part{{"drain", drain}, {"latency", latency}, {"sweep", sweep}, {"inbox", inbox}, {"growth", growth}} {
		if !env.Wanted(p.name) {
			continue
		}
		if err := p.on(ctx, env, &report); err != nil {
			return report, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return report, nil
}

// on runs a part on its own server.
func (p part) on(ctx context.Context, env suite.Env, report *suite.Report) (err error) {
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return p.run(ctx, env, b, report)
}

// bed is a server with a client.
type bed struct {
	server *redistest.Server
	client *redis.Client
}

func newBed(ctx context.Context) (*bed, error) {
	server, err := redistest.Start(ctx)
	if err != nil {
		return nil, err
	}
	return &bed{server, connect(server.Addr())}, nil
}

func connect(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 128})
}

func (b *bed) close() error { return errors.Join(b.client.Close(), b.server.Close()) }

// transactor returns a Transactor whose outbox has room for any backlog.
func transactor(client redis.UniversalClient, keyspace luatx.Keyspace, change ...func(*luatx.Config)) (*luatx.Transactor, error) {
	cfg := luatx.Config{
		Namespace: "bench", Keyspace: keyspace, OutboxCapacity: 1 << 30, OutboxBytes: 1 << 40, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	return luatx.New(client, cfg)
}

func quiet(cfg *luatx.Config) { cfg.NoWakeUps = true }

// event returns the event with a number, of about 300 bytes.
func event(i int) (luatx.Event, error) {
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	body, err := outbox.Encode(message.New(data, message.Attributes{
		"id": id, "source": "/bench", "type": "order.placed", "datacontenttype": "application/json",
	}, nil))
	return luatx.Event{ID: id, Body: body}, err
}

// derived returns the event with a number and without an id, so that it gets one from its transaction.
func derived(int) (luatx.Event, error) {
	return luatx.Event{
		Data:       json.RawMessage(data),
		Attributes: message.Attributes{"source": "/bench", "type": "order.placed", "datacontenttype": "application/json"},
	}, nil
}

// data is the data of each event.
var data = []byte(`{"order":"8c2f","customer":"4711","lines":[{"sku":"a-1","pence":1250,"count":2},{"sku":"b-2","pence":399,"count":1}],"total":2899}`)

const atOnce = 1000 // events per transaction when filling an outbox

// fill commits events, several per transaction, to each of the aggregates in turn.
func fill(ctx context.Context, tr *luatx.Transactor, aggregates []string, event func(int) (luatx.Event, error), from, n int) error {
	for first := from; first < from+n; first += atOnce {
		_, err := tr.Transact(ctx, aggregates[first/atOnce%len(aggregates)], func(tx *luatx.Tx) error {
			for i := first; i < min(first+atOnce, from+n); i++ {
				e, err := event(i)
				if err != nil {
					return err
				}
				if err := tx.Emit(e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// aggregates returns one aggregate in each of n slots.
func aggregates(keyspace luatx.Keyspace, n int) []string {
	var names []string
	seen := map[string]bool{}
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint("a", i)
		if tag, err := keyspace.Tag(name); err == nil && !seen[tag] {
			seen[tag] = true
			names = append(names, name)
		}
	}
	return names
}
