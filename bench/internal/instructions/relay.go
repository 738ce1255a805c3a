package instructions

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
)

// relays publishes a backlog with a publisher that discards events. The ids of its events are derived from the transaction, or given.
func relays(given bool) func(context.Context, *counter) (work, error) {
	return func(_ context.Context, c *counter) (work, error) { return newRelays(c, given) }
}

func newRelays(c *counter, given bool) (work, error) {
	keyspace := luatx.Partitions(1)
	quiet := slog.New(slog.DiscardHandler)
	tr, err := luatx.New(c.client, luatx.Config{Namespace: "bench", Keyspace: keyspace, Logger: quiet, NoWakeUps: true})
	if err != nil {
		return work{}, err
	}
	store, next := outbox.NewStore(tr), 0
	return work{
		prepare: func(ctx context.Context, n int) error {
			for ; n > 0; n -= 256 {
				if _, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
					for range min(n, 256) {
						next++
						if err := tx.Emit(event(next, given)); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		},
		do: func(ctx context.Context, n int) error {
			published := make(chan struct{}, n)
			r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
				for range events {
					published <- struct{}{}
				}
				return nil
			}), relay.Config{Concurrency: 1, NoInline: true, NoWakeUps: true, Lease: 10 * time.Minute, Logger: quiet})
			if err != nil {
				return err
			}
			ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			for range n {
				select {
				case <-published:
				case err := <-ended:
					return fmt.Errorf("the relay stopped early: %w", err)
				}
			}
			stop()
			if err := <-ended; err != nil {
				return err
			}
			left, err := store.Counts(context.WithoutCancel(ctx))
			if err == nil && left.Pending > 0 {
				err = fmt.Errorf("%d events were not published", left.Pending)
			}
			return err
		},
	}, nil
}

// event returns the event of a number. The outbox remembers its id after it was sent if it is given.
func event(n int, given bool) luatx.Event {
	e := luatx.Event{
		Data:       json.RawMessage(fmt.Sprintf(`{"note":"%0200d"}`, n)),
		Attributes: message.Attributes{"source": "/bench", "type": "order.placed"},
	}
	if given {
		e.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
	return e
}
