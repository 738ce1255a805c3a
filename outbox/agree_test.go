package outbox_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// agree checks the counts and the lanes of a shard against its bodies.
func (s shard) agree(continues bool) {
	s.t.Helper()
	entries, pending, parked, sent := s.hash("entries"), s.members("pending"), s.members("parked"), s.members("sent")
	want := map[string]int{"parked": len(parked)}
	for _, body := range entries {
		if body[0] != '=' {
			want["events"]++
			want["bytes"] += len(body)
		}
	}
	by := make(map[string]int)
	errs := s.hash("errors")
	for _, id := range parked {
		want["events"]--
		want["bytes"] -= len(entries[id])
		by["d:"]++
		by["t:sold"]++
		by["c:"+strings.Fields(errs[id])[2]]++
	}
	counts := s.hash("counts")
	for name, n := range want {
		if got, _ := strconv.Atoi(counts[name]); got != n {
			s.t.Fatalf("%s: counted %d, there are %d", name, got, n)
		}
	}
	for field, n := range s.hash("parked:by") {
		if got, _ := strconv.Atoi(n); got != by[field] {
			s.t.Fatalf("%s: %s parked, there are %d", field, n, by[field])
		}
		delete(by, field)
	}
	if len(by) > 0 {
		s.t.Fatalf("parked and not counted: %v", by)
	}
	waiting := s.lanes(pending, parked, continues)
	if len(entries) != len(pending)+len(parked)+len(sent)+waiting {
		s.t.Fatalf("%d entries; %d pending, %d parked, %d sent, %d waiting", len(entries), len(pending), len(parked), len(sent), waiting)
	}
}

// lanes checks that of each lane the head is pending, or parked where that blocks it, and counts those that wait.
func (s shard) lanes(pending, parked []string, continues bool) (waiting int) {
	s.t.Helper()
	headers, last := s.hash("headers"), ""
	members := s.members("lanes")
	if len(headers) != len(members) {
		s.t.Fatalf("%d headers, %d members of lanes", len(headers), len(members))
	}
	for _, member := range members {
		parts := strings.SplitN(member, "\x00", 3)
		key, id := parts[0], parts[2]
		if headers[id] != parts[1]+key {
			s.t.Fatalf("%q has the header %q", member, headers[id])
		}
		head := key != last
		last = key
		isPending, isParked := slices.Contains(pending, id), slices.Contains(parked, id)
		if head != (isPending || isParked) || isParked && continues {
			s.t.Fatalf("%q: head %t, pending %t, parked %t", member, head, isPending, isParked)
		}
		if !head {
			waiting++
		}
	}
	return waiting
}

// TestCountsAgree holds that whatever is done to the events of a shard, counts, lanes and bodies agree.
func TestCountsAgree(t *testing.T) {
	t.Parallel()
	for _, continues := range []bool{false, true} {
		t.Run(fmt.Sprint("continues=", continues), func(t *testing.T) {
			t.Parallel()
			redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				w := newWorld(t, client, rand.New(rand.NewPCG(seed, 0)), continues) //nolint:gosec // no secret
				for range 200 {
					w.step()
					w.agree(continues)
				}
			})
		})
	}
}

// world does things at random to the events of one shard.
type world struct {
	shard
	rnd    *rand.Rand
	store  *outbox.Store
	slot   int
	work   outbox.Work
	made   int
	leased []outbox.Leased
}

func newWorld(t *testing.T, client redis.UniversalClient, rnd *rand.Rand, continues bool) *world {
	t.Helper()
	tr := newTransactor(t, client, onePartition, func(c *luatx.Config) {
		c.OutboxCapacity, c.OutboxBytes, c.LaneCapacity, c.ParkedCapacity = 30, 3000, 10, 8
	})
	at := time.Now().Add(time.Hour)
	return &world{
		shard: shard{t, client, tr}, rnd: rnd, slot: tr.Keyspace().Slots()[0],
		work: outbox.Work{Attempts: 2, BackoffBase: time.Nanosecond, BackoffCap: time.Nanosecond, LaneContinues: continues},
		store: outbox.NewStore(tr).With(outbox.Config{OrderingKey: outbox.ByPartitionKey, At: func(msg *message.Message) (time.Time, error) {
			if msg.Subject() == "later" {
				return at, nil
			}
			return time.Time{}, nil
		}}),
	}
}

// any returns one of the ids that were ever given.
func (w *world) any() string { return fmt.Sprint("e", w.rnd.IntN(w.made+1)) }

func (w *world) step() {
	ctx := redistest.Soon(w.t)
	var err error
	switch w.rnd.IntN(9) {
	case 0, 1, 2:
		w.enqueue()
	case 3:
		w.work.Limit, w.work.Lease = 1+w.rnd.IntN(8), []time.Duration{time.Nanosecond, time.Hour}[w.rnd.IntN(2)]
		var taken outbox.Leased
		taken, err = w.store.Claim(ctx, w.slot, w.work)
		w.leased = append(w.leased, taken)
	case 4, 5:
		w.settle()
	case 6:
		_, err = w.store.Rearm(ctx, w.slot, w.any(), w.any(), w.any())
	case 7:
		_, err = w.store.Cancel(ctx, "a", w.any())
	case 8:
		_, err = w.store.Move(ctx, "a", w.any(), time.UnixMilli(1))
	}
	must(w.t, err)
}

// enqueue adds some events, known ones among them.
func (w *world) enqueue() {
	var events []*message.Message
	for range 1 + w.rnd.IntN(4) {
		n := w.made
		if w.rnd.IntN(6) == 0 {
			n = w.rnd.IntN(w.made + 1)
		}
		w.made = max(w.made, n+1)
		more := [][]string{nil, {"partitionkey", "k"}, {"partitionkey", "l%"}, {"subject", "later"}}[n%4]
		events = append(events, sold(fmt.Sprint("e", n), more...))
	}
	if _, err := w.store.Enqueue(redistest.Soon(w.t), "a", events...); err != nil && !errors.Is(err, luatx.ErrOutboxFull) {
		w.t.Fatal(err)
	}
}

// settle settles what was claimed, and what was not, as relays do.
func (w *world) settle() {
	if len(w.leased) == 0 {
		return
	}
	taken := w.leased[w.rnd.IntN(len(w.leased))]
	ids := append(idsOf(taken), w.any())
	var sent, back []string
	var failures []outbox.Failure
	for _, id := range ids {
		switch w.rnd.IntN(5) {
		case 0:
			failures = append(failures, outbox.Failure{ID: id, Err: errors.New("no")})
		case 1:
			failures = append(failures, outbox.Failure{ID: id, Err: message.Permanent(errors.New("never"))})
		case 2:
			back = append(back, id)
		default:
			sent = append(sent, id)
		}
	}
	ctx := redistest.Soon(w.t)
	w.work.SentRetention = []time.Duration{time.Hour, -1}[w.rnd.IntN(2)]
	w.work.KeepSentBodies = w.rnd.IntN(2) == 0
	_, err := w.store.Sent(ctx, w.slot, w.work, sent...)
	must(w.t, err)
	_, err = w.store.Failed(ctx, taken, w.work, failures...)
	must(w.t, err)
	_, err = w.store.GiveBack(ctx, taken, w.work, 0, back...)
	must(w.t, err)
	if w.rnd.IntN(2) == 0 { // a relay takes along what follows
		batch := make([]script.Settlement, len(ids))
		for i, id := range ids {
			batch[i] = script.Settlement{ID: id, What: "sent"}
		}
		_, err := w.tr.Scripts().Settle(ctx, w.tr.Scripts().Shard(w.slot), script.Settling{
			Attempts: 2, Retention: time.Hour, Continues: w.work.LaneContinues, Lease: time.Hour,
		}, batch)
		must(w.t, err)
	}
}
