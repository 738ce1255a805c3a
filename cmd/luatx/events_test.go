package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestEventsWalkThroughEveryState(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		body := func(id string) []byte {
			return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"type":"sold","source":"/shop","destination":"bank"}`, id)
		}
		store := outbox.NewStore(tr)
		slot, err := store.Slot("a")
		redistest.Must(t, err)
		work := outbox.Work{BackoffBase: time.Hour, BackoffCap: time.Hour}
		_, err = tr.Enqueue(redistest.Soon(t), "a", luatx.Event{ID: "fails", Body: body("fails")})
		redistest.Must(t, err)
		batch, err := store.Claim(redistest.Soon(t), slot, work)
		redistest.Must(t, err)
		_, err = store.Failed(redistest.Soon(t), batch, work, outbox.Fault{ID: "fails", Err: errors.New("the bank is closed")})
		redistest.Must(t, err)
		_, err = tr.Enqueue(redistest.Soon(t), "a", luatx.Event{ID: "leased", Body: body("leased")})
		redistest.Must(t, err)
		_, err = store.Claim(redistest.Soon(t), slot, outbox.Work{Lease: time.Hour})
		redistest.Must(t, err)
		_, err = tr.Enqueue(redistest.Soon(t), "a",
			luatx.Event{ID: "later", Body: body("later"), At: time.Now().Add(time.Hour)},
			luatx.Event{ID: "first", Body: body("first"), Key: "k"}, luatx.Event{ID: "second", Body: body("second"), Key: "k"})
		redistest.Must(t, err)

		s.has(s.run(0, "", "events", "list"), " first pending ", " later scheduled ", " fails retrying ")
		s.has(s.run(0, "", "events", "list", "--state", "retrying"), " fails retrying ", "the bank is closed")
		s.has(s.run(0, "", "events", "list", "--state", "leased"), " leased leased ") //nolint:dupword // the id and the state
		s.has(s.run(0, "", "events", "list", "--state", "waiting", "--key", "k"), " second waiting - 0 k first bank")
		s.has(s.run(0, "", "events", "list", "--state", "scheduled", "--type", "none"), "no scheduled event matches")
		s.has(s.run(2, "", "events", "list", "--state", "lost"), "use one of")
		s.has(s.run(0, "", "events", "show", "later"), "state scheduled")

		s.has(s.acts(2, "", "events", "retry", "fails"), "--reason")
		s.has(s.acts(2, "", "events", "retry", "fails", "--reason", "open again"), " fails retrying ", "retry 1 event now", "--yes")
		s.has(s.acts(2, "", "events", "retry", "--reason", "open again"), "--all")
		s.has(s.acts(0, "", "events", "retry", "--class", "failed", "--reason", "open again", "--dry-run"), "1 0 - bank=1")
		s.has(s.acts(0, "", "events", "retry", "--class", "failed", "--reason", "open again", "--yes"), "1 1 - bank=1")
		s.has(s.acts(1, "", "events", "retry", "leased", "--reason", "why", "--yes"), "in use")
		s.has(s.acts(1, "", "events", "retry", "nobody", "--reason", "why", "--yes"), `"nobody"`)
		s.has(s.acts(2, "", "events", "reschedule", "later", "--reason", "why", "--yes"), "--at and --in")
		s.has(s.acts(0, "", "events", "reschedule", "later", "--at", "2100-01-01T00:00:00Z", "--reason", "why", "--yes"), " later done")
		s.has(s.run(0, "", "events", "list", "--state", "scheduled"), "2100-01-01T00:00:00Z")
		s.has(s.acts(0, "", "events", "reschedule", "later", "--in", "24h", "--reason", "why", "--dry-run"), " later scheduled ")
		s.has(s.acts(0, "", "events", "cancel", "--all", "--reason", "why", "--yes"), "1 1 - bank=1")
		s.has(s.acts(0, "", "events", "park", "first", "--reason", "not yet", "--yes"), " first done")
		s.has(s.run(0, "", "blocked"), " first k ", "operator", "not yet")
		s.has(s.acts(0, "", "events", "discard", "first", "--reason", "never", "--yes"), " first done")
		s.has(s.run(0, "", "events", "list", "--key", "k"), " second pending ")
		s.has(s.run(0, "", "audit"), "alice retry 1", "alice reschedule 1", "alice cancel 1", "alice park 1", "alice discard 1", "open again")
	})
}

func TestEventActsOnIDsApplyTheFilterTheStateAndTheLimit(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		for _, id := range []string{"one", "two"} {
			body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"type":"sold","source":"/shop","destination":"bank"}`, id)
			_, err := tr.Enqueue(redistest.Soon(t), "a", luatx.Event{ID: id, Body: body, At: time.Now().Add(time.Hour)})
			redistest.Must(t, err)
		}
		other := "a"
		for i := 0; slotOf(t, tr, other) == slotOf(t, tr, "a"); i++ {
			other = fmt.Sprint("aggregate-", i)
		}
		name := fmt.Sprintf("%d:one", slotOf(t, tr, "a"))
		for _, flags := range [][]string{
			{"--destination", "post"},
			{"--type", "paid"},
			{"--key", "k"},
			{"--class", "failed"},
			{"--text", "no"},
			{"--older-than", "1s"},
			{"--aggregate", other},
			{"--slot", fmt.Sprint(slotOf(t, tr, other))},
			{"--state", "retrying"},
			{"--state", "parked"},
		} {
			words := append([]string{"events", "discard", "--reason", "never", "--yes"}, flags...)
			s.has(s.acts(1, "", append(words, "one", "two")...), `no event that matches has the id "one, two"`)
			s.has(s.acts(1, "", append(words, "--event", name)...), `no event that matches has the id "`+name+`"`)
		}
		s.has(s.acts(2, "", "events", "discard", "one", "--reason", "r", "--yes", "--aggregate", "a", "--slot", fmt.Sprint(slotOf(t, tr, other))), "--slot does not name")
		s.has(s.acts(2, "", "events", "discard", "one", "--event", name, "--reason", "r", "--yes"), "ids and --event are both given")
		s.has(s.acts(2, "", "parked", "discard", "one", "--event", name, "--reason", "r", "--yes"), "ids and --event are both given")
		s.has(s.acts(0, "", "events", "discard", "one", "two", "--limit", "1", "--reason", "r", "--dry-run"), " one scheduled ")
		s.has(s.acts(0, "", "events", "park", "one", "two", "--limit", "1", "--state", "pending", "--aggregate", "a", "--destination", "bank", "--reason", "r", "--yes"), " one done")
		s.has(s.run(0, "", "stats", "--over", "0"), "1 0 0 1 0")
		s.has(s.acts(0, "", "events", "discard", "--event", name, "--state", "parked", "--reason", "r", "--yes"), " one done")
		s.has(s.acts(0, "", "events", "cancel", "two", "--state", "scheduled", "--reason", "r", "--yes"), " two done")
	})
}

func TestEventActsNeedASlotIfAnIDIsInSeveral(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		store := outbox.NewStore(tr)
		slots := map[int]bool{}
		var last int
		for i := 0; len(slots) < 2; i++ {
			aggregate := fmt.Sprint("a", i)
			slot, err := store.Slot(aggregate)
			redistest.Must(t, err)
			_, err = tr.Enqueue(redistest.Soon(t), aggregate, luatx.Event{ID: "1", Body: []byte(`{"specversion":"1.0","id":"1","type":"t","source":"/s"}`)})
			redistest.Must(t, err)
			slots[slot], last = true, slot
		}
		s.has(s.acts(2, "", "events", "park", "1", "--reason", "why", "--yes"), "--slot")
		s.has(s.acts(0, "", "events", "park", "1", "--reason", "why", "--yes", "--slot", fmt.Sprint(last)), fmt.Sprint(last, " 1 done"))
		s.has(s.run(0, "", "stats", "--over", "0"), "1 0 0 1 0")
	})
}
