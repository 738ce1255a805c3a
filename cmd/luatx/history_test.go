package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestHistoryListsEventsAndFailuresOfATime(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		ctx, tr := redistest.Soon(t), s.service(client)
		s.has(s.run(0, "", "history", "--since", "2h"), "no history from")
		var c history.Counter
		for range 900 {
			c.Add("bank", settle.Sent, "")
		}
		c.Add("mail\x1b", settle.Retry, "http_503")
		link.Of(tr).History.End(ctx, &c)
		s.has(s.run(0, "", "history", "--since", "2h"), "FROM ENQUEUED/S SENT/S FAILED/S", "events by destination:", "bank 900 0 0 0", "mail· 0 1 0 0", "failures by class:", "http_503 1")
		s.has(s.run(0, "", "history", "--since", "2h", "--by", "destination"), "FROM DESTINATION SENT", "bank 900 0 0 0")
		s.has(s.run(0, "", "history", "--since", "2h", "--by", "class"), "FROM CLASS FAILURES", "http_503 1")
		s.has(s.run(0, "", "history", "--since", "2h", "--json"), `"destinations":{"bank":{"sent":900,`, `"classes":{"http_503":1}`, `"step_ns":900000000000`)

		// Somebody asks what happened last night.
		now, err := client.Time(ctx).Result()
		redistest.Must(t, err)
		night := now.UTC().Add(-5 * time.Hour).Truncate(15 * time.Minute)
		key := fmt.Sprintf("%s:{%s}:history:15m:%d", tr.Config().Namespace, slot.Text(0), night.Unix()/900)
		redistest.Must(t, client.HSet(ctx, key, "d:bank", "1800 90 0 9", "c:http_502", 99, "oldest", 754_000, "events", 12_345, "bytes", 5, "parked", 9, "blocked", 0, "full", 12, "enqueued", 1).Err())
		s.has(s.run(0, "", "history", "--at", night.Format("15:04")), night.Format(time.RFC3339)+" 0.0 2.0 0.1 0.0 0.0 12m34s 12345 5 9 0 12%", "bank 1800 90 0 9", "http_502 99")
		s.has(s.run(0, "", "history", "--at", night.Format("2006-01-02 15:04"), "--json"), `"sent":1800`)

		s.has(s.run(2, "", "history", "--at", "soon"), "--at:", "is not a time")
		s.has(s.run(2, "", "history", "--at", "03:00", "--since", "1h"), "use --at alone")
		s.has(s.run(2, "", "history", "--by", "colour"), "use outcome, destination or class")
		s.has(s.run(2, "", "history", "--step", "-1s"), "--step")
		s.has(s.run(1, "", "history", "--since", "1h", "--until", "2h"), "later than Until")
	})
}
