package admin_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

func TestRetryContinuesOnlyIfTheGroupHandlesTheCanary(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		giveUp(t, client, key, "g", "sold", 6)
		d, opts := op.DeadLetters(key), admin.DeadLetterOptions{Canary: 2}
		stop := consume(t, client, key, "g", refuse)
		r, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "hope", opts)
		redistest.Eventually(t, "both to be dead letters again", func() bool { return len(listed(t, d, admin.DeadLetterFilter{})) == 6 })
		stop()
		if err != nil || !r.Stopped || r.Done != 2 || r.Canary.DeadAgain == 0 {
			t.Errorf("canary with a failing group: %+v, %v", r, err)
		}
		opts.CanaryWait = time.Millisecond
		if r, err = d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "hope", opts); err != nil || !r.Stopped || r.Canary != (admin.DeadLetterCanary{Trying: 2}) {
			t.Errorf("canary without a consumer: %+v, %v", r, err)
		}
		opts.CanaryWait = 0
		consume(t, client, key, "g", func(*message.RawMessage) error { return nil })
		seen := 0
		opts.Progress = func(r admin.DeadLetterResult) { seen = r.Done }
		r, err = d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "repaired", opts)
		if err != nil || r.Stopped || r.Done != 4 || r.Canary != (admin.DeadLetterCanary{Handled: 2}) || seen != 4 {
			t.Errorf("canary with a working group: %+v, %v; progress reported %d", r, err, seen)
		}
		if left := listed(t, d, admin.DeadLetterFilter{}); len(left) != 0 {
			t.Errorf("%d are left", len(left))
		}
	})
}

func TestCanaryIsFilledUpIfItsFirstDeadLettersAreSkipped(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 1)
		tag := "{" + redistest.Tag(t) + "}"
		for _, of := range slices.Concat(slices.Repeat([]string{"elsewhere"}, 3), slices.Repeat([]string{tag + ":orders"}, 4)) { // elsewhere is in another slot
			redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: tag + ":failed", Values: []string{
				"dead-reason", "why", "dead-stream", of, "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "3",
				"dead-first", "1", "dead-last", "2", "data", "1",
			}}).Err())
		}
		r, err := op.DeadLetters(tag+":failed").Retry(ctx, admin.DeadLetterFilter{}, "hope", admin.DeadLetterOptions{Canary: 2, CanaryWait: time.Millisecond})
		if err != nil || !r.Stopped || r.Done != 2 || r.Skipped[outbox.WrongState] != 3 || r.Canary != (admin.DeadLetterCanary{Trying: 2}) {
			t.Errorf("canary behind three dead letters of another slot, without a consumer: %+v, %v", r, err)
		}
	})
}

// TestCanaryFollowsPackedDeadLettersBesideOthers has a group without consumers, and one that handles its entries.
func TestCanaryFollowsPackedDeadLettersBesideOthers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:orders"
		redistest.Must(t, client.XGroupCreateMkStream(ctx, key, "absent", "0").Err())
		dead := func(group string) []string {
			return []string{
				"dead-reason", "why", "dead-stream", key, "dead-entry", "1-1", "dead-group", group, "dead-consumer", "c", "dead-deliveries", "3",
				"dead-first", "1", "dead-last", "2",
			}
		}
		for _, first := range []string{"working", "absent"} { // the packed one
			for _, fields := range [][]string{append([]string{"dead-packed", "4:data1:1"}, dead(first)...), append(dead("working"), "data", "2")} {
				redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: stream.DeadLetterKey(key), Values: fields}).Err())
			}
		}
		consume(t, client, key, "working", func(*message.RawMessage) error { return nil })
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		r, err := op.DeadLetters(key).Retry(waiting, admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{
			Canary: 4, CanaryWait: time.Hour,
			Progress: func(r admin.DeadLetterResult) {
				if r.Canary.Handled == 3 {
					stop()
				}
			},
		})
		if !errors.Is(err, context.Canceled) || r.Canary != (admin.DeadLetterCanary{Handled: 3, Trying: 1}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestCanaryComparesIDsAsNumbers(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	server.SetTime(time.Now()) // all ids have one time, and their counters begin at 0
	_, op := admintest.Service(t, client, 1)
	key := "{" + redistest.Tag(t) + "}:orders"
	const entries = 6 // get the counters 6 to 11 when they are put back
	giveUp(t, client, key, "g", "sold", entries)
	consume(t, client, key, "g", func(*message.RawMessage) error { return nil })
	r, err := op.DeadLetters(key).Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{Canary: entries})
	if err != nil || r.Stopped || r.Canary.Handled != entries {
		t.Errorf("%+v, %v; want a canary of %d that is handled", r, err, entries)
	}
}
