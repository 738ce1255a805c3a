package verdict

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/torture/internal/ground"
)

// World is the content of the servers at the end of a run.
type World struct {
	Branches  []Holding
	Published []Publication
	// Refused are the events that were parked once, because the broker rejected them.
	Refused []string
}

// Holding is the content of one branch.
type Holding struct {
	ground.Branch
	Balances  map[string]int64
	Effects   map[string]ground.Effect
	Times     map[string]int64
	Sums      map[string]int64
	Lanes     map[string]int64
	Stock     map[string]int64
	Entries   map[string]bool // ids that the outbox remembers
	Orders    []string        // ids of the inputs in the stream, including repetitions
	Ticks     []string        // ids of the entries
	Ticked    map[string]int64
	Signals   []string // ids of the entries
	Signalled map[string]int64
	Steps     []string        // ids of the entries
	Stumbling map[string]bool // those of them that fail for good
	Stepped   []string        // the ids as they were applied
	Stumbled  []string        // the ids of the dead letters' entries
	Doomed    string          // what is wrong with the keys of transactions that must fail
	Bodies    string          // what is wrong with the large bodies of its outbox
}

// Publication is an entry of the broker's stream.
type Publication struct {
	At                int64 // nanoseconds, to the millisecond
	ID, Of, Type      string
	Subject           string
	Due               int64 // milliseconds; 0: at once
	LeftToPublish, MS int64 // milliseconds that the relay gave, and when it arrived
	Declared, Filling int64 // bytes of its filling, as it says, and as it has
}

// pageSize is how many entries of a stream are read at once.
const pageSize = 5000

// Look reads the world from the servers.
func Look(ctx context.Context, plan ground.Plan, client redis.UniversalClient, tr *luatx.Transactor) (*World, error) {
	branches, err := plan.Branches()
	if err != nil {
		return nil, err
	}
	w := &World{}
	for _, b := range branches {
		h, err := look(ctx, b, client, tr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		w.Branches = append(w.Branches, h)
	}
	broker := plan.ConnectBroker()
	defer func() { _ = broker.Close() }()
	if w.Refused, err = broker.SMembers(ctx, plan.Refused()).Result(); err != nil {
		return nil, err
	}
	err = entries(ctx, broker, plan.Published(), func(m redis.XMessage) error {
		p, err := publication(m)
		w.Published = append(w.Published, p)
		return err
	})
	return w, err
}

func look(ctx context.Context, b ground.Branch, client redis.UniversalClient, tr *luatx.Transactor) (Holding, error) {
	h := Holding{Branch: b, Effects: map[string]ground.Effect{}, Entries: map[string]bool{}, Stumbling: map[string]bool{}}
	var err error
	for key, numbers := range map[string]*map[string]int64{
		b.Balances: &h.Balances, b.Times: &h.Times, b.Sums: &h.Sums, b.Lanes: &h.Lanes, b.Stock: &h.Stock, b.Ticked: &h.Ticked,
		b.Signalled: &h.Signalled,
	} {
		if *numbers, err = ints(ctx, client, key); err != nil {
			return h, err
		}
	}
	effects, err := client.HGetAll(ctx, b.Effects).Result()
	if err != nil {
		return h, err
	}
	for id, text := range effects {
		if h.Effects[id], err = ground.ParseEffect(text); err != nil {
			return h, err
		}
	}
	ids, err := client.HKeys(ctx, link.Of(tr).Scripts.Shard(b.Slot).Key("entries")).Result()
	if err != nil {
		return h, err
	}
	for _, id := range ids {
		h.Entries[id] = true
	}
	err = errors.Join(
		entries(ctx, client, b.Orders, func(m redis.XMessage) error {
			id, _ := m.Values["ce_id"].(string)
			h.Orders = append(h.Orders, id)
			return nil
		}),
		entries(ctx, client, b.Ticks, keep(&h.Ticks)),
		entries(ctx, client, b.Signals, keep(&h.Signals)),
		entries(ctx, client, b.Steps, func(m redis.XMessage) error {
			h.Steps = append(h.Steps, m.ID)
			h.Stumbling[m.ID] = m.Values[ground.FieldStumbles] == "1"
			return nil
		}),
		entries(ctx, client, stream.DeadLetterKey(b.Steps), func(m redis.XMessage) error {
			id, _ := m.Values["dead-entry"].(string)
			h.Stumbled = append(h.Stumbled, id)
			return nil
		}),
	)
	if err != nil {
		return h, err
	}
	if h.Stepped, err = client.LRange(ctx, b.Stepped, 0, -1).Result(); err != nil {
		return h, err
	}
	if h.Doomed, err = doomed(ctx, client, b); err != nil {
		return h, err
	}
	h.Bodies, err = bodies(ctx, client, link.Of(tr).Scripts.Shard(b.Slot))
	return h, err
}

// bodies reports what is wrong with the large bodies of a shard: each belongs to an event, or expires, and no event has lost its own.
func bodies(ctx context.Context, client redis.UniversalClient, home shard.Shard) (string, error) {
	pipe := client.Pipeline()
	index := pipe.HGetAll(ctx, home.Key("bodies"))
	entries := pipe.HGetAll(ctx, home.Key("entries"))
	if _, err := pipe.Exec(ctx); err != nil {
		return "", err
	}
	there, err := redistest.Dump(ctx, client, home.Key("body:")+"*")
	if err != nil {
		return "", err
	}
	var wrong []string
	for name, event := range index.Val() {
		key := home.Key("body:") + name
		body, found := there.Keys[key]
		if !found || body.ExpireAt > 0 || !strings.HasSuffix(entries.Val()[event], " "+name) {
			wrong = append(wrong, fmt.Sprintf("%s of event %q: exists %t, expires at %d, entry %.60q", key, event, found, body.ExpireAt, entries.Val()[event]))
		}
		delete(there.Keys, key)
	}
	for key, body := range there.Keys {
		if body.ExpireAt == 0 {
			wrong = append(wrong, key+" belongs to no event and does not expire")
		}
	}
	return strings.Join(wrong, "; "), nil
}

// keep appends the ids of entries.
func keep(ids *[]string) func(redis.XMessage) error {
	return func(m redis.XMessage) error {
		*ids = append(*ids, m.ID)
		return nil
	}
}

// doomed compares the keys of transactions that must fail with their initial values.
func doomed(ctx context.Context, client redis.UniversalClient, b ground.Branch) (string, error) {
	text, list, set, zset, stream, fresh := b.Doomed()
	pipe := client.Pipeline()
	got := pipe.Get(ctx, text)
	items := pipe.LRange(ctx, list, 0, -1)
	members := pipe.SCard(ctx, set)
	all := pipe.SMIsMember(ctx, set, "one", "two")
	expiry := pipe.PTTL(ctx, set)
	scores := pipe.ZRangeWithScores(ctx, zset, 0, -1)
	length := pipe.XLen(ctx, stream)
	exists := pipe.Exists(ctx, fresh)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", err
	}
	found := fmt.Sprintf("%s %v %d %v %d %v %d %d", got.Val(), items.Val(), members.Val(), all.Val(), expiry.Val(), scores.Val(), length.Val(), exists.Val())
	const want = "text [one two] 2 [true true] -1 [{1 one} {2 two}] 1 0"
	if found != want {
		return found + ", want " + want, nil
	}
	return "", nil
}

func ints(ctx context.Context, client redis.UniversalClient, key string) (map[string]int64, error) {
	fields, err := client.HGetAll(ctx, key).Result()
	if err != nil {
		return nil, err
	}
	numbers := make(map[string]int64, len(fields))
	for name, text := range fields {
		if numbers[name], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, key, err)
		}
	}
	return numbers, nil
}

// entries calls each for every entry of a stream.
func entries(ctx context.Context, client redis.Cmdable, key string, each func(redis.XMessage) error) error {
	for from := "-"; ; {
		page, err := client.XRangeN(ctx, key, from, "+", pageSize).Result()
		if err != nil {
			return err
		}
		for _, m := range page {
			if err := each(m); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		from = group.Behind(page[len(page)-1].ID)
	}
}

func publication(m redis.XMessage) (Publication, error) {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	ms, _, _ := strings.Cut(m.ID, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	left, wrong := strconv.ParseInt(text("left"), 10, 64)
	due, wrongDue := strconv.ParseInt(text("due"), 10, 64)
	declared, wrongSize := strconv.ParseInt(text("declared"), 10, 64)
	filling, wrongFilling := strconv.ParseInt(text("filling"), 10, 64)
	return Publication{
		At: at * 1e6, MS: at, ID: text("id"), Of: text("of"), Type: text("type"), Subject: text("branch"), Due: due, LeftToPublish: left,
		Declared: declared, Filling: filling,
	}, errors.Join(err, wrong, wrongDue, wrongSize, wrongFilling)
}
