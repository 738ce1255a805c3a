package stream_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// fill makes a server exceed its maxmemory.
func fill(t *testing.T, client *redis.Client) {
	t.Helper()
	redistest.Must(t, redistest.AsAdmin(t, client).ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := client.Set(t.Context(), "key", "value", 0).Err(); err == nil {
		t.Fatal("the server is not full")
	}
}

func TestDeleteAckedFreesServerAtMaxmemory(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	f := newFixture(t, client)
	f.add(t, numbers(2)...)
	cfg := f.config()
	cfg.DeleteAcked = true
	sub := f.subscribe(t, cfg)
	first, second := sub.next(t), sub.next(t)
	fill(t, client)
	first.Ack()
	second.Ack()
	redistest.Eventually(t, "the entries are deleted", func() bool { return len(f.entries(t)) == 0 })
	f.wantPending(t, 0)
}

func TestMemberKeepsLeasesAtMaxmemory(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	p := newParted(t, client, 2)
	p.publish(t, 2, 0, 1)
	cfg := p.config()
	cfg.Lease = 300 * time.Millisecond
	member := p.join(t, cfg, func(msg *message.RawMessage) { msg.Ack() })
	redistest.Eventually(t, "the member has the partitions", func() bool { return member.Stats().Holding == 2 })
	fill(t, client)
	until := func() int64 {
		_, fields := p.lease(t, 0)
		ms, err := strconv.ParseInt(fields["until"], 10, 64)
		redistest.Must(t, err)
		return ms
	}
	began := until()
	redistest.Eventually(t, "the leases are extended", func() bool { return until() > began+1000 })
	if n := member.Stats().Holding; n != 2 {
		t.Errorf("the member holds %d partitions", n)
	}
}
