package stream_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func (f *fixture) entries(t testing.TB) []string {
	t.Helper()
	all, err := f.client.XRange(t.Context(), f.key, "-", "+").Result()
	redistest.Must(t, err)
	ids := []string{}
	for _, x := range all {
		ids = append(ids, x.ID)
	}
	return ids
}

func (f *fixture) read(t testing.TB, group string, count int64) {
	t.Helper()
	err := f.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{f.key, ">"}, Count: count, Block: -1}).Err()
	redistest.Must(t, err)
}

func (f *fixture) trim(t testing.TB) int64 {
	t.Helper()
	n, err := stream.TrimAcked(t.Context(), f.client, f.key, true)
	redistest.Must(t, err)
	return n
}

func TestTrimAckedRemovesEntriesAckedByEveryGroup(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		if n := f.trim(t); n != 0 {
			t.Errorf("%d trimmed of no stream", n)
		}
		ids := f.add(t, numbers(10)...)
		want := func(step string, from int) {
			t.Helper()
			before := len(f.entries(t))
			n := int(f.trim(t))
			if got := f.entries(t); !slices.Equal(got, ids[from:]) || n != before-len(got) {
				t.Fatalf("%s: left %d of 10, want %d; %d were trimmed", step, len(got), 10-from, n)
			}
		}
		want("no groups", 0)
		for _, group := range []string{"quick", "slow"} {
			redistest.Must(t, f.client.XGroupCreate(t.Context(), f.key, group, "0").Err())
		}
		f.read(t, "quick", 10)
		redistest.Must(t, f.client.XAck(t.Context(), f.key, "quick", ids...).Err())
		want("slow has read nothing", 0)
		f.read(t, "slow", 6)
		want("all pending", 0)
		redistest.Must(t, f.client.XAck(t.Context(), f.key, "slow", ids[0], ids[1], ids[4]).Err())
		want("the third is pending", 2)
		redistest.Must(t, f.client.XAck(t.Context(), f.key, "slow", ids[2], ids[3], ids[5]).Err())
		want("six were read", 6)
		f.read(t, "slow", 4)
		redistest.Must(t, f.client.XAck(t.Context(), f.key, "slow", ids[6:]...).Err())
		want("all acknowledged", 10)
	})
}

// The ids exceed 2^53, where Lua takes different numbers for equal.
func TestTrimAckedComparesIDsExactly(t *testing.T) {
	t.Parallel()
	ids := []string{"9007199254740992-9", "9007199254740992-10", "9007199254740993-1", "9007199254740993-9007199254740993", "18446744073709551615-3"}
	for _, slow := range []string{"a", "z"} { // sorted before and after the fast group
		for read := 1; read <= len(ids); read++ {
			f := shared(t)
			for _, id := range ids[:read] {
				redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: id, Values: []any{"a", "b"}}).Err())
			}
			redistest.Must(t, f.client.XGroupCreate(t.Context(), f.key, "quick", "0").Err())
			redistest.Must(t, f.client.XGroupCreate(t.Context(), f.key, slow, "0").Err())
			f.read(t, "quick", 9)
			redistest.Must(t, f.client.XAck(t.Context(), f.key, "quick", ids...).Err())
			for i := range read {
				f.read(t, slow, 1)
				f.trim(t)
				if got := f.entries(t); !slices.Equal(got, ids[i:read]) {
					t.Errorf("of %q %s is pending: left %q", ids[:read], ids[i], got)
				}
				redistest.Must(t, f.client.XAck(t.Context(), f.key, slow, ids[i]).Err())
			}
		}
	}
}

// acked adds entries, which the only group of the stream reads and acknowledges.
func (f *fixture) acked(t testing.TB, ids ...string) {
	t.Helper()
	pipe := f.client.Pipeline()
	pipe.XGroupCreateMkStream(t.Context(), f.key, "g", "0")
	for _, id := range ids {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: id, Values: []any{"a", "b"}})
	}
	pipe.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{f.key, ">"}, Count: int64(len(ids)), Block: -1})
	pipe.XAck(t.Context(), f.key, "g", ids...)
	_, err := pipe.Exec(t.Context())
	redistest.Must(t, err)
}

func counted(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "1-" + strconv.Itoa(i+1)
	}
	return ids
}

func TestTrimAckedTrimsTheLastEntryIfTheNextIDIsExact(t *testing.T) {
	t.Parallel()
	for id, left := range map[string]int{"5-0": 0, "5-999999999999999": 0, "5-9999999999999998": 1} {
		f := shared(t)
		f.acked(t, id)
		if n := f.trim(t); int(n) != 1-left || len(f.entries(t)) != left {
			t.Errorf("%s: trimmed %d, left %d, want %d", id, n, len(f.entries(t)), left)
		}
	}
}

func TestTrimAckedApproximatelyKeepsTheEntriesOfANode(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 6, 2)
	f := shared(t)
	f.acked(t, counted(10)...)
	redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: "2-1", Values: []any{"a", "b"}}).Err())
	n, err := stream.TrimAcked(t.Context(), f.client, f.key, false)
	if err != nil || n != 0 || len(f.entries(t)) != 11 {
		t.Errorf("trimmed %d, %v; left %d of 11", n, err, len(f.entries(t)))
	}
}

// TestTrimAckedDeletesEntriesOfAnOldServer has a server that does not know MINID, as before Redis 6.2.
func TestTrimAckedDeletesEntriesOfAnOldServer(t *testing.T) {
	t.Parallel()
	for acked, trims := range map[int][]int64{2001: {2001, 0}, 999: {999, 0}} {
		f := withoutXTrim(t, "ERR syntax error")
		ids := counted(acked + 1)
		f.acked(t, ids[:acked]...)
		redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: ids[acked], Values: []any{"a", "b"}}).Err())
		for i, want := range trims {
			if n := f.trim(t); n != want {
				t.Errorf("trim %d of %d entries trimmed %d, want %d", i, acked, n, want)
			}
		}
		if left := f.entries(t); !slices.Equal(left, ids[acked:]) {
			t.Errorf("left %d entries, want the one that was not read", len(left))
		}
	}
}

func TestTrimAckedDeletesNothingIfTheServerDeniesXTRIM(t *testing.T) {
	t.Parallel()
	f := withoutXTrim(t, "NOPERM this user has no permissions to run the 'xtrim' command")
	f.acked(t, counted(10)...)
	n, err := stream.TrimAcked(t.Context(), f.client, f.key, true)
	if err == nil || n != 0 || len(f.entries(t)) != 10 {
		t.Errorf("trimmed %d, %v; left %d of 10", n, err, len(f.entries(t)))
	}
}

// withoutXTrim returns a fixture whose server returns an error for XTRIM.
func withoutXTrim(t *testing.T, reply string) *fixture {
	t.Helper()
	server, client := redistest.Mini(t)
	server.Server().SetPreHook(func(peer *miniserver.Peer, cmd string, _ ...string) bool {
		if cmd == "XTRIM" {
			peer.WriteError(reply)
		}
		return cmd == "XTRIM"
	})
	return newFixture(t, client)
}

func TestTrimAckedKeepsEntriesThatAGroupHasNotAcked(t *testing.T) {
	t.Parallel()
	f := shared(t)
	rapid.Check(t, func(rt *rapid.T) {
		redistest.Must(t, f.client.Del(t.Context(), f.key).Err())
		groups := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(rt, "groups")]
		acked := map[string]map[string]bool{}
		for _, g := range groups {
			redistest.Must(t, f.client.XGroupCreateMkStream(t.Context(), f.key, g, "0").Err())
			acked[g] = map[string]bool{}
		}
		all := []string{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			g := rapid.SampledFrom(groups).Draw(rt, "group")
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				for range rapid.IntRange(1, 5).Draw(rt, "entries") {
					id := "1-" + strconv.Itoa(len(all)+1)
					redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, ID: id, Values: []any{"a", "b"}}).Err())
					all = append(all, id)
				}
			case 1:
				err := f.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: g, Consumer: "c", Streams: []string{f.key, ">"}, Count: 3, Block: -1}).Err()
				if err != nil && err != redis.Nil { //nolint:errorlint // the client returns it as it is
					rt.Fatal(err)
				}
			case 2:
				pending, err := f.client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: f.key, Group: g, Start: "-", End: "+", Count: 100}).Result()
				redistest.Must(t, err)
				if len(pending) > 0 {
					id := rapid.SampledFrom(pending).Draw(rt, "ack").ID
					redistest.Must(t, f.client.XAck(t.Context(), f.key, g, id).Err())
					acked[g][id] = true
				}
			case 3:
				f.trim(t)
			}
		}
		f.trim(t)
		left := f.entries(t)
		for _, id := range all {
			needed := false
			for _, g := range groups {
				needed = needed || !acked[g][id]
			}
			if needed && !slices.Contains(left, id) {
				rt.Fatalf("%s is gone, which a group has not acknowledged", id)
			}
		}
	})
}

func TestPublisherTrimsAckedEntriesOncePerInterval(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	sub := f.subscribe(t, f.config())
	pub := f.publisher(t, func(c *stream.PublisherConfig) {
		c.TrimAcked, c.ExactTrim, c.TrimInterval = true, true, 300*time.Millisecond
	})
	for _, n := range numbers(5) {
		send(t, pub, order(n))
		sub.next(t).Ack()
	}
	f.wantPending(t, 0)
	trims := func() int {
		return len(proxy.Commands(func(cmd []string) bool { return len(cmd) == 5 && cmd[4] == "=" }))
	}
	if n := trims(); n > 2 { // EVALSHA, and EVAL if the server has not loaded the script
		t.Errorf("%d trims within the interval", n)
	}
	eventually(t, func() bool {
		send(t, pub, order("more"))
		sub.next(t).Ack()
		return len(f.entries(t)) < 5
	}, func() string { return "trim failed" })
}

func TestMessageIsWrittenThoughItsTrimFails(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t, func(o *redis.Options) { o.MaxRetries = -1 })
	proxy.Next(1, respproxy.Command("EVALSHA"), respproxy.CutRequest())
	if errs := f.publisher(t, func(c *stream.PublisherConfig) { c.TrimAcked = true }).Send(t.Context(), order("1")); errs != nil {
		t.Error(errs)
	}
	f.logs.want(t, "stream: trim failed", 1)
	if got := f.written(t, f.key); len(got) != 1 {
		t.Errorf("wrote %q", got)
	}
}

func TestSubscriberTrimsOrDeletes(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*stream.SubscriberConfig){
		"trims":   func(c *stream.SubscriberConfig) { c.TrimAcked = true },
		"deletes": func(c *stream.SubscriberConfig) { c.DeleteAcked = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.add(t, numbers(250)...)
			cfg := f.config()
			cfg.BatchSize = 50
			set(&cfg)
			sub := f.subscribe(t, cfg)
			held := sub.next(t)
			source, _ := held.InputSource()
			for range 249 {
				sub.next(t).Ack()
			}
			f.wantPending(t, 1)
			if name == "deletes" {
				if got := f.entries(t); !slices.Equal(got, []string{source.Entry}) {
					t.Errorf("left %d entries, want the one that is in flight", len(got))
				}
			}
			held.Ack()
			eventually(t, func() bool { return len(f.entries(t)) < 100 }, func() string { return "entries stay" })
			f.wantPending(t, 0)
		})
	}
}

func TestEachStreamIsTrimmedOncePerInterval(t *testing.T) {
	t.Parallel()
	f := shared(t)
	home := f.key
	pub := f.publisher(t, func(c *stream.PublisherConfig) {
		c.Stream, c.StreamFor = "", func(msg *message.RawMessage) (string, error) { return home + msg.Destination(), nil }
		c.TrimAcked, c.ExactTrim, c.TrimInterval = true, true, time.Hour
	})
	var msgs []*message.RawMessage
	destinations := []string{":a", ":b"}
	for _, to := range destinations {
		f.key = home + to
		acked := f.add(t, "acked")
		redistest.Must(t, f.client.XGroupCreate(t.Context(), f.key, "g", "0").Err())
		f.read(t, "g", 1)
		redistest.Must(t, f.client.XAck(t.Context(), f.key, "g", acked...).Err())
		msg := order("new")
		msg.Attributes[message.AttrDestination] = to
		msgs = append(msgs, msg)
	}
	send(t, pub, msgs...)
	for _, to := range destinations {
		if got := f.written(t, home+to); !slices.Equal(got, []string{"new"}) {
			t.Errorf("stream %s has the entries %q, want only the new one", to, got)
		}
	}
}
