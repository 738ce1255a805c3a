package redistest_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// fill writes a key of every type.
func fill(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	redistest.Must(
		t,
		client.Set(ctx, "{x}string", "a\x00b\r\n", 0).Err(),
		client.Set(ctx, "{x}ttl", "v", time.Hour).Err(),
		client.RPush(ctx, "{x}list", "b", "a", "b").Err(),
		client.SAdd(ctx, "{x}set", "1", "2", "x").Err(),
		client.HSet(ctx, "{x}hash", "f", "1", "g", "2").Err(),
		client.ZAdd(ctx, "{x}zset", redis.Z{Score: 0.1, Member: "m"}, redis.Z{Score: 9007199254740991, Member: "n"}).Err(),
		client.XGroupCreateMkStream(ctx, "{x}stream", "g", "0").Err(),
		client.XAdd(ctx, &redis.XAddArgs{Stream: "{x}stream", ID: "1-1", Values: []string{"f", "v"}}).Err(),
		client.XAdd(ctx, &redis.XAddArgs{Stream: "{x}stream", ID: "2-1", Values: []string{"f", "w"}}).Err(),
		readGroup(t, client, "c", ">").Err(),
	)
}

func readGroup(t *testing.T, client redis.UniversalClient, consumer, after string) *redis.XStreamSliceCmd {
	t.Helper()
	return client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{"{x}stream", after}, Count: 1, Block: -1})
}

func dump(t *testing.T, client redis.UniversalClient, patterns ...string) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, patterns...)
	redistest.Must(t, err)
	return state
}

// Every change that a test may wonder about must show.
func checkEveryChangeShows(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	fill(t, client)
	before := dump(t, client)
	if diff := redistest.Diff(before, dump(t, client)); diff != "" {
		t.Errorf("nothing was changed, but Diff returned:\n%s", diff)
	}
	assert.Equal(t, len(before.Keys), 7, "keys of %v", before.Keys)
	ctx := t.Context()
	for _, step := range []struct {
		want   string
		change func() redis.Cmder
	}{
		{`"v2"`, func() redis.Cmder { return client.Set(ctx, "{x}string", "v2", 0) }},
		{`never`, func() redis.Cmder { return client.Persist(ctx, "{x}ttl") }},
		{`expires never, then at`, func() redis.Cmder { return client.PExpire(ctx, "{x}ttl", 2*time.Hour) }},
		{`expires at`, func() redis.Cmder { return client.PExpire(ctx, "{x}ttl", 2*time.Hour+time.Minute) }},
		{`another order`, func() redis.Cmder { return client.RPopLPush(ctx, "{x}list", "{x}list") }},
		{`+ "3"`, func() redis.Cmder { return client.SAdd(ctx, "{x}set", "3") }},
		{`- "f": "1"`, func() redis.Cmder { return client.HSet(ctx, "{x}hash", "f", "2") }},
		{`+ 0.30000000000000004 "m"`, func() redis.Cmder {
			return client.ZAdd(ctx, "{x}zset", redis.Z{Score: math.Nextafter(0.3, 1), Member: "m"})
		}},
		{`+ entry 3-1 "f": "x"`, func() redis.Cmder {
			return client.XAdd(ctx, &redis.XAddArgs{Stream: "{x}stream", ID: "3-1", Values: []string{"f", "x"}})
		}},
		{`last-delivered-id 2-1`, func() redis.Cmder { return readGroup(t, client, "c", ">") }},
		{`deliveries 2`, func() redis.Cmder {
			return client.XClaim(ctx, &redis.XClaimArgs{Stream: "{x}stream", Group: "g", Consumer: "c", MinIdle: 0, Messages: []string{"2-1"}})
		}},
		{`consumer "d" pending 0`, func() redis.Cmder {
			if made := client.XGroupCreateConsumer(ctx, "{x}stream", "g", "d"); made.Err() == nil {
				return made
			}
			return readGroup(t, client, "d", "0") // before 6.2 a read creates the consumer
		}},
		{`- group "g" pending 1-1`, func() redis.Cmder { return client.XAck(ctx, "{x}stream", "g", "1-1") }},
		{`+ group "h"`, func() redis.Cmder { return client.XGroupCreate(ctx, "{x}stream", "h", "0") }},
		{`- entry 1-1`, func() redis.Cmder { return client.XDel(ctx, "{x}stream", "1-1") }},
		{`- "{x}hash" hash`, func() redis.Cmder { return client.Del(ctx, "{x}hash") }},
		{`type set, then string`, func() redis.Cmder { return client.Set(ctx, "{x}set", "now a string", 0) }},
		{`+ "{x}new" string`, func() redis.Cmder { return client.Set(ctx, "{x}new", "v", 0) }},
	} {
		redistest.Must(t, step.change().Err())
		after := dump(t, client)
		if diff := redistest.Diff(before, after); !strings.Contains(diff, step.want) {
			t.Errorf("want %s, got:\n%s", step.want, diff)
		}
		before = after
	}
}

func TestDumpOfServerShowsEveryType(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	checkEveryChangeShows(t, client)
	if dump(t, client).Digest == "" {
		t.Error("the dump has no digest")
	}
}

func TestDumpOfMiniredisShowsEveryType(t *testing.T) {
	t.Parallel()
	checkEveryChangeShows(t, redistest.Client(t, miniredis.RunT(t).Addr()))
}

func TestDumpOfClusterShowsAllNodes(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	client := cluster.Client(t)
	checkEveryChangeShows(t, client)
	for i := range 30 {
		redistest.Must(t, client.Set(t.Context(), strconv.Itoa(i), "v", 0).Err())
	}
	redistest.Must(t, client.Persist(t.Context(), "{x}ttl").Err()) // MIGRATE tells the time left, which begins anew where it arrives
	before := dump(t, client)
	if len(before.Keys) != 37 || before.Digest == "" {
		t.Fatalf("%d keys, digest %q", len(before.Keys), before.Digest)
	}
	slot := keySlot(t, client, "{x}")
	_, to := ends(t, cluster, slot)
	redistest.Must(t, cluster.MigrateSlot(t.Context(), slot, to))
	if diff := redistest.Diff(before, dump(t, client)); diff != "" {
		t.Errorf("only the master of the keys has changed, but Diff returned:\n%s", diff)
	}
}

func TestDumpTakesPatterns(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	ns := redistest.Namespace(t)
	for _, part := range []string{":a:1", ":b:1", ":c:1"} {
		redistest.Must(t, client.Set(t.Context(), ns+part, part, time.Minute).Err())
	}
	state := dump(t, client, ns+":a:*", ns+":c:*")
	if len(state.Keys) != 2 || state.Digest != "" || state.Keys[ns+":c:1"].Value[0] != `":c:1"` {
		t.Errorf("got %v", state)
	}
}

// TestDiffShowsDifferentDigests matters because the digest covers more than the dump.
func TestDiffShowsDifferentDigests(t *testing.T) {
	t.Parallel()
	if diff := redistest.Diff(redistest.State{Digest: "1"}, redistest.State{Digest: "2"}); !strings.Contains(diff, "DIGEST") {
		t.Errorf("got %q", diff)
	}
	if diff := redistest.Diff(redistest.State{Digest: "1"}, redistest.State{}); diff != "" {
		t.Errorf("Diff with an unknown digest: %q", diff)
	}
}

func TestDiffToleratesMillisecondsAndShortensLines(t *testing.T) {
	t.Parallel()
	state := func(expireAt int64, value ...string) redistest.State {
		return redistest.State{Keys: map[string]redistest.Entry{"k": {Type: "list", Value: value, ExpireAt: expireAt}}}
	}
	if diff := redistest.Diff(state(1000), state(1005)); diff != "" {
		t.Errorf("expiries 5 ms apart differ: %s", diff)
	}
	if diff := redistest.Diff(state(1000), state(1006)); diff == "" {
		t.Error("expiries 6 ms apart do not differ")
	}
	if diff := redistest.Diff(state(0, "a", "a", "b"), state(0, "a", "b", "b")); !strings.Contains(diff, "- a\n    + b\n") {
		t.Errorf("got %s", diff)
	}
	long := strings.Repeat("x", 1000)
	diff := redistest.Diff(state(0, long+"1"), state(0, long+"2"))
	if first, second, _ := strings.Cut(diff, "+"); len(diff) > 800 || first == second || !strings.Contains(diff, "1001 characters") {
		t.Errorf("got %s", diff)
	}
	if diff := redistest.Diff(state(0), state(0, strings.Split(long, "")...)); !strings.Contains(diff, "980 more") {
		t.Errorf("got %s", diff)
	}
}
