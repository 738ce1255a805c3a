package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

func TestProcessesAndTriggersListRegisteredOnes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		ctx, list := redistest.Soon(t), link.Of(s.service(client)).Processes
		s.has(s.run(0, "", "processes"), "no process is registered")
		s.has(s.run(0, "", "triggers"), "no trigger is registered")
		redistest.Must(t,
			list.Beat(ctx, "consumer-a", process.Consumer, process.Report{Stream: "orders", Group: "billing", Holding: 2, InFlight: 3}),
			list.Beat(ctx, "trigger-a", process.Trigger, process.Report{Trigger: &process.TriggerReport{Function: "mail\x1b", State: "Receiving", Ready: true, Lag: 7}}),
		)
		s.has(s.run(0, "", "processes"), "consumer alive", "orders billing 3 2 partitions", "trigger alive", "mail·")
		s.has(s.run(0, "", "processes", "trigger", "--json"), `"kind":"trigger"`, `"lag":7`)
		s.has(s.run(1, "", "processes", "relays"), "does not exist", "use relay, consumer")
		s.has(s.run(0, "", "triggers"), "mail· Receiving true")
		redistest.Must(t, list.Beat(ctx, "trigger-b", process.Trigger, process.Report{Trigger: &process.TriggerReport{Function: "sms", State: "Backoff", Stalled: true, LastError: "no\nroute"}}))
		s.has(s.run(1, "", "triggers"), "sms Backoff, stalled false", "no·route")
	})
}

func TestParkedShowNamesTheRelayThatHoldsALeasedEvent(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		ctx, tr := redistest.Soon(t), s.service(client)
		s.acts(0, lines("network", "1"), "parked", "import", "-", "--yes")
		s.acts(0, "", "parked", "rearm", "1", "--yes")
		store := outbox.NewStore(tr)
		slot, err := store.Slot("a")
		redistest.Must(t, err)
		_, err = store.Claim(ctx, slot, outbox.Work{Lease: time.Hour})
		redistest.Must(t, err)
		leased, err := store.Show(ctx, slot, "1")
		redistest.Must(t, err, link.Of(tr).Processes.Beat(ctx, "relay-b", process.Relay, process.Report{Leases: []process.Lease{{Slot: slot, Lease: leased.Lease, Events: 1}}}))
		s.has(s.run(0, "", "parked", "show", "1"), "state leased", "held by relay-b")
		s.has(s.run(0, "", "parked", "show", "1", "--json"), `"holder":"relay-b"`)
	})
}

func TestTimersCommandsCountListAndShow(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		ctx := redistest.Soon(t)
		s.has(s.run(0, "", "timers", "list"), "no timer matches")
		store, err := expiry.New(s.service(client), expiry.Config{})
		redistest.Must(t, err,
			store.Record(ctx, "late", time.UnixMilli(1)), store.Record(ctx, "soon", time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)), store.Record(ctx, "gone", time.UnixMilli(1)))
		_, err = store.Revoke(ctx, "gone", nil)
		redistest.Must(t, err)
		s.has(s.run(0, "", "timers", "stats"), "OPEN DUE DECIDED OVERDUE NEXT 2 1 1", "2199-01-01T00:00:00Z")
		s.has(s.run(0, "", "timers", "list", "--due", "--json"), `"subject":"late","state":"open","due":"1970-`)
		s.has(s.run(0, "", "timers", "list", "--text", "oo"), "soon open 2199-01-01T00:00:00Z -")
		first := s.run(0, "", "timers", "list", "--limit", "1")
		s.has(first, "there are more; --after ", "late open")
		_, cursor, _ := strings.Cut(first, "--after ")
		cursor, _, _ = strings.Cut(cursor, " ")
		if next := s.run(0, "", "timers", "list", "--limit", "1", "--after", cursor); !strings.Contains(next, "soon open") || strings.Contains(next, "late") {
			t.Errorf("the next timers:\n%s", next)
		}
		s.has(s.run(1, "", "timers", "list", "--after", "!"), "is not a cursor")
		s.has(s.run(0, "", "timers", "list", "--json"), `"cursor":"`+cursor+`"`)
		s.has(s.run(0, "", "timers", "list", "--decided"), "gone revoked - 2")
		s.has(s.run(0, "", "timers", "show", "late", "gone"), "late open", "gone revoked")
		s.has(s.run(1, "", "timers", "show", "nobody"), "no shard has an open or revoked timer")
		s.has(s.run(2, "", "timers", "list", "--slot", "x"), "use a number")
	})
}
