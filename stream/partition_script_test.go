package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// rawPartition is a stream with the group g. The consumer me has its lease.
type rawPartition struct {
	t                          *testing.T
	client                     redis.UniversalClient
	void, lease, stream, taken string
}

func newRawPartition(t *testing.T, client redis.UniversalClient) rawPartition {
	t.Helper()
	tag := "{" + redistest.Namespace(t) + "}:"
	p := rawPartition{t, client, tag + "void", tag + "lease", tag + "stream", tag + "taken"}
	redistest.Must(t, client.HSet(t.Context(), p.lease, "owner", "me").Err(), client.XGroupCreateMkStream(t.Context(), p.stream, "g", "0").Err())
	return p
}

// add adds entries with these ids.
func (p rawPartition) add(ids ...string) {
	p.t.Helper()
	for _, id := range ids {
		redistest.Must(p.t, p.client.XAdd(p.t.Context(), &redis.XAddArgs{Stream: p.stream, ID: id, Values: []string{"n", id[:1]}}).Err())
	}
}

// deliver delivers the new entries to a consumer.
func (p rawPartition) deliver(consumer string) {
	p.t.Helper()
	redistest.Must(p.t, p.client.XReadGroup(p.t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{p.stream, ">"}, Block: -1}).Err())
}

func (p rawPartition) ack(ids ...string) {
	p.t.Helper()
	redistest.Must(p.t, p.client.XAck(p.t.Context(), p.stream, "g", ids...).Err())
}

// read calls the script for the consumer me.
func (p rawPartition) read(limit, attempts, takeOver int) string {
	p.t.Helper()
	keys := []string{p.void, p.lease, p.stream, p.taken}
	reply, err := p.client.Eval(p.t.Context(), lua.Script("partition", nil), keys, "me", "g", limit, attempts, takeOver).Slice()
	redistest.Must(p.t, err)
	return fmt.Sprint(reply)
}

// pending lists the pending entries with their consumers and deliveries.
func (p rawPartition) pending() string {
	p.t.Helper()
	found, err := p.client.XPendingExt(p.t.Context(), &redis.XPendingExtArgs{Stream: p.stream, Group: "g", Start: "-", End: "+", Count: 10}).Result()
	redistest.Must(p.t, err)
	var all []string
	for _, e := range found {
		all = append(all, fmt.Sprint(e.ID, " ", e.Consumer, " ", e.RetryCount))
	}
	return strings.Join(all, ", ")
}

// noted lists the consumers that have lost entries.
func (p rawPartition) noted() string {
	p.t.Helper()
	return strings.ReplaceAll(strings.Join(p.client.HKeys(p.t.Context(), p.taken).Val(), ", "), "\x00", " ")
}

// TestOwnerOfAPartitionReadsUnfinishedEntriesFirstAndEachOfThemAlone runs on every server, and on one whose clock does not change.
func TestNoteOfAConsumerThatLostEntriesExpires48HoursAfterTheLastOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newRawPartition(t, client)
		for _, id := range []string{"1-0", "2-0"} {
			p.add(id)
			p.deliver("other")
			if got := p.read(2, 0, 0); !strings.HasPrefix(got, "[old "+id) {
				t.Fatalf("read %s", got)
			}
			if left := client.PTTL(t.Context(), p.taken).Val(); left < 47*time.Hour {
				t.Errorf("after the loss of %s, the note expires in %v", id, left)
			}
			p.ack(id)
			redistest.Must(t, client.PExpire(t.Context(), p.taken, time.Hour).Err())
		}
	})
}

func TestOwnerOfAPartitionReadsUnfinishedEntriesFirstAndEachOfThemAlone(t *testing.T) {
	t.Parallel()
	redistest.Every(t, readRawPartition)
	t.Run("miniredis in one millisecond", func(t *testing.T) {
		t.Parallel()
		server, client := redistest.Mini(t)
		server.SetTime(time.Now())
		readRawPartition(t, client)
	})
}

func readRawPartition(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	p, silent := newRawPartition(t, client), 0
	if strings.Contains(t.Name(), "miniredis") {
		silent = 1 // it counts a claim with JUSTID as a delivery
	}
	assert.Equal(t, p.read(2, 0, 1), "[none 0-0]", "an empty stream")
	p.add("1-0", "2-0", "3-0", "4-0", "5-0")
	assert.Equal(t, p.read(2, 0, 0), "[new [[1-0 [n 1]] [2-0 [n 2]]]]", "new entries")
	p.deliver("other")
	p.ack("2-0")
	assert.Equal(t, p.read(2, 0, 0), "[old 1-0 2 [n 1]]", "an entry again")
	assert.Equal(t, p.noted(), "", "noted before another consumer has lost an entry")
	p.ack("1-0")
	assert.Equal(t, p.read(2, 0, 0), "[old 3-0 2 [n 3]]", "an entry of another consumer")
	assert.Equal(t, p.noted(), "g other", "noted")
	assert.Equal(t, p.pending(), "3-0 me 2, 4-0 other 1, 5-0 other 1", "pending after one was read")
	p.ack("3-0")
	assert.Equal(t, p.read(2, 1, 0), "[used 4-0 1]", "an entry that was delivered as often as allowed")
	assert.Equal(t, p.pending(), fmt.Sprintf("4-0 me %d, 5-0 other 1", 1+silent), "pending after it was read")
	p.ack("4-0")
	assert.Equal(t, p.read(2, 0, 1), fmt.Sprintf("[old 5-0 %d [n 5]]", 2+silent), "an entry that was taken over")
	consumers, err := client.XInfoConsumers(t.Context(), p.stream, "g").Result()
	if err != nil || len(consumers) != 1 || consumers[0].Name != "me" {
		t.Errorf("the consumers are %v, %v", consumers, err)
	}
	p.ack("5-0")
	assert.Equal(t, p.read(2, 0, 0), "[none 5-0]", "no entry")

	p.add("6-0")
	p.deliver("me")
	redistest.Must(t, client.XDel(t.Context(), p.stream, "6-0").Err())
	assert.Equal(t, p.read(2, 0, 0), "[trimmed 6-0]", "an entry that is gone")
	assert.Equal(t, p.pending(), "", "pending at the end")
	redistest.Must(t, client.HSet(t.Context(), p.lease, "owner", "other").Err())
	assert.Equal(t, p.read(2, 0, 1), "[lost]", "the lease of another one")
}

func TestOwnerTakesOverEntriesAtMaxmemory(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	p := newRawPartition(t, client)
	p.add("1-0")
	p.deliver("other")
	fill(t, client)
	assert.Equal(t, p.read(2, 0, 1), "[old 1-0 2 [n 1]]", "an entry that was taken over")
	assert.Equal(t, p.noted(), "g other", "noted")
}
