package way

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var cells = map[string]func() []measure.Way{"consume": Consume, "whole way": Whole}

// TestEachWayDoesAllOfTheWork checks the writes, an event of the right size for each message, and that no message is pending.
// It runs each way twice, because rounds follow each other.
func TestEachWayDoesAllOfTheWork(t *testing.T) {
	t.Parallel()
	const n = 300
	for cell, ways := range cells {
		for i, way := range ways() {
			t.Run(cell+"/"+strings.ReplaceAll(way.Name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				way := ways()[i] // the ways of one call alternate
				server := redistest.Single(t, redistest.Own())
				running, err := way.Setup(t.Context(), measure.Cell{Payload: 300, Options: redis.UniversalOptions{Addrs: []string{server.Addr()}}})
				must(t, err)
				defer running.Close()
				for range 2 {
					must(t, running.Prepare(t.Context(), n))
					must(t, running.Round(t.Context(), n))
				}
				used, err := running.CPU(t.Context())
				must(t, err)
				if used <= 0 {
					t.Error("the server used no processor")
				}
				checkWork(t, server.Client(t), n)
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkWork(t *testing.T, client *redis.Client, n int) {
	t.Helper()
	ctx := t.Context()
	w, err := newWork(nil, 300)
	must(t, err)
	if got := client.HGetAll(ctx, w.hash).Val(); len(got) != 3 || got["status"] != "placed" {
		t.Errorf("the hash is %v", got)
	}
	if got := client.Get(ctx, w.counter).Val(); got != "300" {
		t.Errorf("the counter is %s", got)
	}
	if got := events(t, client, w); got != n {
		t.Errorf("%d events of at least 300 bytes, want %d", got, n)
	}
	marked := len(client.Keys(ctx, w.markKey("*")).Val())
	for _, key := range client.Keys(ctx, "bench:*:inbox:a").Val() {
		marked += int(client.HLen(ctx, key).Val()) - 1 // the metadata
	}
	if marked != n {
		t.Errorf("%d ids are known, want %d", marked, n)
	}
	if pending, err := client.XPending(ctx, w.in, group).Result(); err == nil && pending.Count != 0 {
		t.Errorf("%d messages are pending", pending.Count)
	}
}

// events returns the number of events, wherever the way has stored them.
func events(t *testing.T, client *redis.Client, w work) (n int) {
	t.Helper()
	ctx := t.Context()
	count := func(body string) {
		if strings.Contains(body, string(w.event)) {
			n++
		}
	}
	for _, stream := range []string{outStream, w.outbox} {
		for _, entry := range client.XRange(ctx, stream, "-", "+").Val() {
			for _, value := range entry.Values {
				count(value.(string))
			}
		}
	}
	for _, key := range client.Keys(ctx, "bench:*:entries").Val() {
		for _, body := range client.HGetAll(ctx, key).Val() {
			count(body)
		}
	}
	for _, id := range client.LRange(ctx, asynqKey(asynqOut, "pending"), 0, -1).Val() {
		count(client.HGet(ctx, asynqKey(asynqOut, "t:"+id), "msg").Val())
	}
	return n
}

func TestFailingWayEndsTheRoundWithTheReason(t *testing.T) {
	t.Parallel()
	for cell, ways := range cells {
		for i, way := range ways() {
			t.Run(cell+"/"+strings.ReplaceAll(way.Name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				way := ways()[i]
				server := redistest.Single(t, redistest.Own())
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				running, err := way.Setup(ctx, measure.Cell{Payload: 300, Options: redis.UniversalOptions{Addrs: []string{server.Addr()}}})
				must(t, err)
				defer running.Close()
				must(t, running.Prepare(ctx, 10))
				w, err := newWork(nil, 300)
				must(t, err)
				client := server.Client(t)
				must(t, client.Set(ctx, w.hash, "no hash", 0).Err())
				if err := running.Round(ctx, 10); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
					t.Errorf("error %v, want that of HSET", err)
				}
			})
		}
	}
}
