package admintest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// History writes a history of 30 days, in which the destination bank was unavailable for half an hour from the given time on.
func History(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, outage time.Time) {
	t.Helper()
	ctx := redistest.Soon(t)
	now, err := client.Time(ctx).Result()
	Must(t, err)
	for name, r := range map[string]history.Resolution{"10s": history.Fine(), "15m": history.Coarse()} {
		pipe := client.Pipeline()
		for at := now.Add(-r.Keep).Truncate(r.Step); at.Before(now.Add(-r.Step)); at = at.Add(r.Step) {
			key := fmt.Sprintf("%s:{%s}:history:%s:%d", tr.Config().Namespace, slot.Text(0), name, at.UnixMilli()/r.Step.Milliseconds())
			down := !at.Before(outage) && at.Before(outage.Add(30*time.Minute))
			pipe.HSet(ctx, key, intervalOf(at, r.Step, down)...)
			pipe.Expire(ctx, key, time.Hour)
		}
		_, err := pipe.Exec(ctx)
		Must(t, err)
	}
	count(t, client, tr, enqueuedUntil(now))
}

// enqueuedUntil returns the number of events that were ever enqueued until a time.
func enqueuedUntil(at time.Time) int64 { return at.Unix() * 10 }

// count makes the first shard count as many events that were ever enqueued.
func count(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, enqueued int64) {
	t.Helper()
	ctx, scripts, slot := redistest.Soon(t), link.Of(tr).Scripts, tr.Keyspace().Slots()[0]
	counts, err := scripts.Counts(ctx, []int{slot})
	Must(t, err)
	Must(t, client.HSet(ctx, scripts.Shard(slot).Key("counts"), "left", enqueued-counts[slot].Events()).Err())
}

// intervalOf returns the fields of an interval of a shop whose customers sleep at night.
func intervalOf(at time.Time, long time.Duration, down bool) []any {
	seconds := int64(long.Seconds())
	perSecond := 8 + 6*int64(12-max(at.Hour()-12, 12-at.Hour()))/12 + at.Unix()/long.Milliseconds()%3
	bank, events, oldest, full := fmt.Sprintf("%d 0 0 0", perSecond*seconds), int64(20), int64(180), int64(0)
	fields := []any{"d:mail", fmt.Sprintf("%d %d 0 0", 2*seconds, seconds/10), "c:network", strconv.FormatInt(seconds/10, 10)}
	if down {
		bank, events, oldest, full = fmt.Sprintf("0 %d %d 9", seconds/2, 3*seconds), 9000, 754_000, 9
		fields = append(fields, "c:http_503", strconv.FormatInt(seconds*7/2, 10))
	}
	return append(fields, "d:bank", bank, "events", events, "bytes", events*400, "oldest", oldest, "parked", 12, "blocked", 0, "full", full,
		"enqueued", enqueuedUntil(at))
}
