package stream_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// wide returns the n fields of an entry. Two of them have the same name, and some contain parts of the packed form.
func wide(n int) []string {
	texts := []string{"dead-packed", "1:x", "data", "x", "twice", "", "twice", "\x00\xff:\r\n"}
	for i := len(texts) / 2; i < n; i++ {
		texts = append(texts, "f"+strconv.Itoa(i), strconv.Itoa(i)+":")
	}
	return texts[:2*n]
}

// rawFields returns the fields of the last entry of a stream in their order.
func rawFields(t *testing.T, client redis.UniversalClient, key string) []string {
	t.Helper()
	last, err := client.Do(t.Context(), "xrevrange", key, "+", "-", "count", 1).Slice()
	redistest.Must(t, err)
	var texts []string
	for _, text := range last[0].([]any)[1].([]any) {
		texts = append(texts, fmt.Sprint(text))
	}
	return texts
}

func TestEntriesOfAnyNumberOfFieldsBecomeDeadLettersAndComeBack(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		sizes := []int{1, 4, 1000, 1001, 4001, 50_000}
		if strings.HasSuffix(t.Name(), "/miniredis") { // its Lua cannot join so many texts
			sizes = sizes[:3]
		}
		for _, n := range sizes {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, client)
				fields := wide(n)
				redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: fields}).Err())
				cfg := f.config()
				cfg.MaxDeliveries = 1
				sub := f.subscribe(t, cfg)
				sub.next(t).Nack(errBusy)
				f.wantPending(t, 0)
				sub.stop()
				all := f.dead(t)
				if len(all) != 1 || all[0].Reason != errBusy.Error() || all[0].Stream != f.key || all[0].Deliveries != 1 || all[0].Values["dead-packed"] != "1:x" {
					t.Fatalf("%d dead letters, the first is %.300v", len(all), all)
				}
				if packed := rawFields(t, client, stream.DeadLetterKey(f.key))[0] == "dead-packed"; packed != (n > 1000) {
					t.Errorf("packed: %t", packed)
				}
				// Several operators put it back at once.
				operator := redistest.AsAdmin(t, client)
				var put sync.WaitGroup
				counts := make([]int, 4)
				for i := range counts {
					put.Go(func() {
						var err error
						if counts[i], err = stream.PutBack(t.Context(), operator, stream.DeadLetterKey(f.key), all[0].ID); err != nil {
							t.Error(err)
						}
					})
				}
				put.Wait()
				slices.Sort(counts)
				if !slices.Equal(counts, []int{0, 0, 0, 1}) || client.XLen(t.Context(), f.key).Val() != 2 {
					t.Fatalf("put back %v times, the stream has %d entries, want 2", counts, client.XLen(t.Context(), f.key).Val())
				}
				if got := rawFields(t, client, f.key); !slices.Equal(got, fields) {
					t.Errorf("%d texts came back, %.100q, want %d", len(got), got, len(fields))
				}
			})
		}
	})
}

func TestPartitionContinuesBehindAnEntryOfManyFields(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		if strings.HasSuffix(t.Name(), "/miniredis") {
			t.Skip("its Lua cannot join so many texts")
		}
		p, book := newParted(t, client, 1), &handledBook{}
		p.publish(t, 1, 0, 1)
		many := append([]string{"ce_specversion", "1.0", "ce_subject", "poison"}, wide(4100)...)
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: p.keys()[0], Values: many}).Err())
		p.publish(t, 1, 1, 3)
		cfg := p.config()
		cfg.MaxDeliveries = 2
		p.join(t, cfg, func(msg *message.RawMessage) {
			if msg.Subject() == "poison" {
				msg.Nack(errors.New("poison"))
				return
			}
			book.ack(msg)
		})
		book.wantInOrder(t, 1, 3)
	})
}

func TestDamagedPackedDeadLettersAreNotPutBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	key := stream.DeadLetterKey(f.key)
	head := []string{
		"dead-reason", "r", "dead-stream", f.key, "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "1",
		"dead-first", "1", "dead-last", "1",
	}
	for _, packed := range []string{"", "x", "1", "5:abc", "-1:", "1:a", "99999999999999999999:a", ":a"} {
		id, err := f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: append([]string{"dead-packed", packed}, head...)}).Result()
		redistest.Must(t, err)
		if _, err := stream.PutBack(t.Context(), f.client, key, id); !errors.Is(err, stream.ErrNotDeadLetter) {
			t.Errorf("%q: error is %v, want ErrNotDeadLetter", packed, err)
		}
	}
	if n := f.client.XLen(t.Context(), key).Val(); n != 8 {
		t.Errorf("%d are left, want 8", n)
	}
}

func TestMessagesOfChannelsStayInTheDeadLetters(t *testing.T) {
	t.Parallel()
	f := shared(t)
	key := stream.DeadLetterKey(f.key)
	add := func(of string) string {
		id, err := f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{
			"dead-reason", "no", "dead-stream", of, "dead-entry", "", "dead-group", "", "dead-consumer", "", "dead-deliveries", 0,
			"dead-first", 1, "dead-last", 1, "data", "x",
		}}).Result()
		redistest.Must(t, err)
		return id
	}
	id := add("")
	add(f.key)
	if n, err := stream.PutBack(t.Context(), f.client, key, id); n != 0 || err == nil || !strings.Contains(err.Error(), "a message of a channel") {
		t.Errorf("%d moved, %v, want an error", n, err)
	}
	if n, err := stream.PutBackAll(t.Context(), f.client, key); n != 1 || err != nil {
		t.Errorf("%d moved, %v, want the entry of the stream", n, err)
	}
	if left := f.dead(t); len(left) != 1 || left[0].ID != id {
		t.Errorf("%+v are left, want the message of the channel", left)
	}
}
