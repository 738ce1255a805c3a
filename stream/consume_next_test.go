package stream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
)

// scriptedConsumption returns a run of Consume that reads from a scripted group.
func scriptedConsumption(t *testing.T, answers *scripted.Group, cfg SubscriberConfig) (*consumption, *scripted.Server) {
	t.Helper()
	server := scripted.New(answers.Answer, scripted.GroupScripts...)
	cfg.Stream, cfg.Group, cfg.Consumer = "s", "g", "me"
	s, err := NewSubscriber(server.Client(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := newSubscription(t.Context(), s, 8)
	if err != nil {
		t.Fatal(err)
	}
	return &consumption{reader: newReader(sub), work: t.Context(), reading: make(chan struct{}, 1)}, server
}

func TestNackedEntriesThatAreOverdueMayBeClaimedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, server := scriptedConsumption(t, &scripted.Group{}, SubscriberConfig{MaxIdleTime: time.Minute})
		c.offerNacked([]*entry{{id: "1-0", due: time.Now().Add(-10 * time.Second)}, {id: "2-0", due: time.Now()}})
		if held := server.Heard("hold"); len(held) != 1 || fmt.Sprint(held[0].Cmd[5:]) != "[60000 0 1-0 2-0]" {
			t.Errorf("offered by\n%s", scripted.Words(held))
		}
	})
}

func TestTurnOfConsumeTakesReadMessagesUpToABatchFirst(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(context.Context, *consumption) ([]*message.RawMessage, error){
		"while the other turn reads": func(ctx context.Context, c *consumption) ([]*message.RawMessage, error) {
			c.reading <- struct{}{}
			return c.next(ctx, nil)
		},
		"with the reader": func(ctx context.Context, c *consumption) ([]*message.RawMessage, error) { return c.next(ctx, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, server := scriptedConsumption(t, &scripted.Group{}, SubscriberConfig{BatchSize: 2, BlockTimeout: time.Hour})
			for _, ready := range []int{1, 2, 3} {
				for range ready {
					c.out <- message.NewRaw(nil, nil, nil)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				batch, err := next(ctx, c)
				cancel()
				if len(batch) != min(ready, 2) || err != nil || len(c.out) != ready-len(batch) || len(server.Heard("xreadgroup")) > 0 {
					t.Errorf("%s: %d of %d messages, %v, reads:\n%s", name, len(batch), ready, err, scripted.Words(server.Heard("xreadgroup")))
				}
				for len(c.out) > 0 {
					<-c.out
				}
				select {
				case <-c.reading:
				default:
				}
			}
		})
	}
}

func TestTurnOfConsumeReadsNothingNewWhenItCannotReadItsOwnEntries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, server := scriptedConsumption(t, &scripted.Group{Say: map[string]any{"exec": scripted.ErrNoGroup}}, SubscriberConfig{})
		if _, err := c.next(t.Context(), nil); err == nil || len(server.Heard("xreadgroup")) > 0 {
			t.Errorf("error is %v, reads:\n%s", err, scripted.Words(server.Heard("xreadgroup")))
		}
	})
}
