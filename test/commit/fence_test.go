package commit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

// fenced commits entries of an input for a consumer in one script. The entry is the id of its message.
func fenced(t *testing.T, tr *luatx.Transactor, in rig.Input, consumer string, entries ...string) []commit.Outcome {
	t.Helper()
	var batch []commit.Commit
	for _, entry := range entries {
		key := rig.Key(t, tr, "a", "effect:"+entry)
		batch = append(batch, commit.Commit{
			Digest: fmt.Sprintf("%16s", entry), Token: fmt.Sprintf("%010d", rand.Uint32()), NotAfter: time.Now().Add(time.Minute),
			Input:    commit.Input{Ack: commit.AckFused, Stream: in.Stream, Group: "g", Consumer: consumer, Entry: entry},
			Commands: []commit.Command{rig.Set(key, consumer)}, Keys: []string{key},
		})
	}
	outcomes, _, err := rig.Commit(redistest.Soon(t), tr, link.Of(tr).Scripts.Shard(slot.OfTag("a")), batch)
	redistest.Must(t, err)
	return outcomes
}

func deadLetter(t *testing.T, in rig.Input, consumer, entry string) group.Outcome {
	t.Helper()
	outcome, err := in.Member(consumer).Bury(t.Context(), entry, group.Grave{Key: group.DeadLetterKey(in.Stream), Reason: "never"})
	redistest.Must(t, err)
	return outcome
}

func TestConsumerCommitsNoDeadLetterOfTheConsumerThatTookTheEntryOver(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		var entries []string
		for i, owner := range []string{"older", "old", "old", "old"} {
			entries = append(entries, rig.EntryOf(t, in.Deliver(owner, rig.Order(fmt.Sprint(i)))))
		}
		in.TakeOver("new", entries[:2]...) // one claim, from two consumers
		for _, entry := range entries[:2] {
			if outcome := deadLetter(t, in, "new", entry); outcome != group.Moved {
				t.Fatal(outcome)
			}
		}
		outcomes := fenced(t, tr, in, "older", entries[0])
		outcomes = append(outcomes, fenced(t, tr, in, "old", entries[1:]...)...)
		for i, want := range []commit.State{commit.Fenced, commit.Fenced, commit.Committed, commit.Committed} {
			if outcomes[i].State != want || outcomes[i].Acked != (want == commit.Committed) {
				t.Errorf("entry %d: %+v, want %s", i, outcomes[i], want)
			}
		}
	})
}

func TestConsumerCommitsNoDeadLetterOfItsOwn(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		entry := rig.EntryOf(t, in.Deliver("c", rig.Order("1")))
		deadLetter(t, in, "c", entry)
		assert.Equal(t, fenced(t, tr, in, "c", entry)[0].State, commit.Fenced, "the outcome")
	})
}

func TestFenceDoesNotSeeClaimsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		claim := func(entry string) {
			args := &redis.XClaimArgs{Stream: in.Stream, Group: "g", Consumer: "cli", Messages: []string{entry}}
			redistest.Must(t, client.XClaimJustID(ctx, args).Err())
		}
		in.TakeOver("other", rig.EntryOf(t, in.Deliver("third", rig.Order("0")))) // leaves a note, of another consumer
		first := rig.EntryOf(t, in.Deliver("c", rig.Order("1")))
		claim(first)
		assert.Equal(t, fenced(t, tr, in, "c", first)[0].State, commit.Committed, "with an inbox")
		assert.Equal(t, fenced(t, tr, in, "cli", first)[0].State, commit.Duplicate, "the consumer that claimed it")
		second := in.Deliver("c", rig.Order("2"))
		claim(rig.EntryOf(t, second))
		r := rig.NewRouter(t, message.PipeConfig{}, luatx.Middleware(tr), func(ctx context.Context) ([]*message.Message, error) {
			return nil, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, rig.Key(t, tr, "a", "n")))
		})
		assert.Is(t, assert.ErrOf(r.Process(ctx, second)), luatx.ErrFenced, "without an inbox")
	})
}

func TestFenceWithoutAnAcknowledgementHolds(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		own, taken := rig.EntryOf(t, in.Deliver("c", rig.Order("1"))), rig.EntryOf(t, in.Deliver("c", rig.Order("2")))
		in.TakeOver("other", taken)
		for name, position := range map[string]*commit.Position{"inbox": nil, "position": {Offset: "1", Owner: commit.OwnerOf(1, "")}} {
			for entry, want := range map[string]commit.State{own: commit.Committed, taken: commit.Fenced} {
				key := rig.Key(t, tr, "a", name, entry)
				tx := commit.Commit{
					Digest: fmt.Sprintf("%-16.16s", name[:1]+entry), Token: "base5678\x00\x01", NotAfter: time.Now().Add(time.Minute),
					Input:    commit.Input{Ack: commit.AckFence, Stream: in.Stream, Group: "g", Consumer: "c", Entry: entry},
					Commands: []commit.Command{rig.Set(key, "v")}, Keys: []string{key},
				}
				if position != nil {
					moved := *position
					moved.Field = entry
					tx.Position = &moved
				}
				outcomes, _, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), []commit.Commit{tx})
				redistest.Must(t, err)
				if outcomes[0].State != want || outcomes[0].Acked || (client.Exists(t.Context(), key).Val() == 1) != (want == commit.Committed) {
					t.Errorf("%s, entry %s: %+v, want %s", name, entry, outcomes[0], want)
				}
			}
		}
		assert.Equal(t, in.Pending(), 2, "pending entries")
	})
}

func TestCommitThatAsksForTheOwnerAcknowledgesItsEntry(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		batch := luatxTx("0123456789abcdef", "base5678\x00\x01", time.Now().Add(time.Minute))
		entry := rig.EntryOf(t, in.Deliver("c", rig.Order("1")))
		batch[0].Input = commit.Input{Ack: commit.AckFused, Stream: in.Stream, Group: "g", Consumer: "c", Entry: entry, Strict: true}
		for _, want := range []commit.State{commit.Committed, commit.Replayed} {
			outcomes, _, err := rig.Commit(redistest.Soon(t), tr, shardOf(tr), batch)
			if err != nil || outcomes[0].State != want || !outcomes[0].Acked || in.Pending() != 0 {
				t.Errorf("%+v, %v, want %s; %d entries are pending", outcomes, err, want, in.Pending())
			}
		}
	})
}

func TestNoteOfAnotherTypeMakesTheFenceAskForTheOwner(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr := rig.NewTransactor(t, client)
		in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
		own, taken := rig.EntryOf(t, in.Deliver("c", rig.Order("1"))), rig.EntryOf(t, in.Deliver("c", rig.Order("2")))
		redistest.Must(t, client.Set(t.Context(), group.TakenKey(in.Stream), "no hash", 0).Err())
		in.TakeOver("other", taken)
		if got := fenced(t, tr, in, "c", taken, own); got[0].State != commit.Fenced || got[1].State != commit.Committed {
			t.Errorf("%+v", got)
		}
		assert.Equal(t, client.TTL(t.Context(), group.TakenKey(in.Stream)).Val(), -1, "the expiry of the key")
	})
}

func TestNotesNameFormerConsumersAndExpireAfter48Hours(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := t.Context()
		in := rig.NewInput(t, client, "{"+redistest.Namespace(t)+"}:in")
		entry := rig.EntryOf(t, in.Deliver("one", rig.Order("1")))
		key := group.TakenKey(in.Stream)
		in.TakeOver("one", entry)
		assert.Equal(t, client.Exists(ctx, key).Val(), 0, "notes of a consumer that claims its own entry")
		in.TakeOver("two", entry)
		redistest.Must(t, client.PExpire(ctx, key, time.Hour).Err())
		if claimed, err := in.Member("three").Claim(ctx, time.Hour, []string{entry, "1-1"}); len(claimed) != 0 || err != nil {
			t.Errorf("claimed %v, %v", claimed, err)
		}
		in.TakeOver("one", entry)
		notes := client.HGetAll(ctx, key).Val()
		for _, consumer := range []string{"one", "two"} {
			assert.Equal(t, len(notes["g\x00"+consumer]), 13, "%s: digits of the note", consumer)
		}
		if ttl := client.PTTL(ctx, key).Val(); len(notes) != 2 || ttl <= 47*time.Hour || ttl > 48*time.Hour {
			t.Errorf("notes %q expire in %v", notes, ttl)
		}
	})
}

func TestTakeoversAtMaxmemoryAreNoted(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t, redistest.Own()).Client(t)
	tr := rig.NewTransactor(t, client)
	in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
	entry := rig.EntryOf(t, in.Deliver("one", rig.Order("1")))
	in.Deliver("three", rig.Order("2"))
	redistest.Must(t, client.HSet(t.Context(), rig.Key(t, tr, "a", "lease"), "owner", "three").Err())
	redistest.Must(t, redistest.AsAdmin(t, client).ConfigSet(t.Context(), "maxmemory", "1").Err())
	in.TakeOver("two", entry)
	takePartition(t, client, tr, in, "three", 1, 0)
	notes := client.HGetAll(t.Context(), group.TakenKey(in.Stream)).Val()
	if len(notes) != 2 || notes["g\x00one"] == "" || notes["g\x00two"] == "" {
		t.Errorf("notes %q", notes)
	}
	_, err := in.Member("three").Bury(t.Context(), entry, group.Grave{Key: group.DeadLetterKey(in.Stream)})
	if err == nil || in.Pending() != 2 {
		t.Errorf("a dead letter on a full server: %v, %d entries pending", err, in.Pending())
	}
}

// takePartition reads a stream as the holder of a partition's lease, whose keys it has.
func takePartition(
	t *testing.T, client redis.UniversalClient, tr *luatx.Transactor, in rig.Input, consumer string, takeOver, attempts int,
) {
	t.Helper()
	keys := []string{rig.Key(t, tr, "a", "void"), rig.Key(t, tr, "a", "lease"), in.Stream, group.TakenKey(in.Stream)}
	script := redis.NewScript(lua.Script("partition", nil))
	redistest.Must(t, script.Run(t.Context(), client, keys, consumer, "g", 1, attempts, takeOver).Err())
}

// TestFenceAgreesWithXPENDING takes random steps of several consumers. Each commit must agree with the list of pending entries
// right before it, whatever scripts of luatx have done to the entries.
func TestFenceAgreesWithXPENDING(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, seed := rig.NewTransactor(t, client), rand.Uint64()
		m := &fenceModel{
			t: t, client: client, tr: tr, in: rig.NewInput(t, client, rig.Key(t, tr, "a", "in")), rng: rand.New(rand.NewPCG(seed, 0)),
			held: map[string][]string{}, committed: map[string]bool{}, dropped: map[string]string{}, seen: map[commit.State]int{},
		}
		for range 400 {
			m.step()
			if t.Failed() {
				t.Fatalf("seed %d, after %q", seed, m.log[max(0, len(m.log)-12):])
			}
		}
		if m.seen[commit.Fenced] == 0 || m.seen[commit.Committed] == 0 || m.seen[commit.Duplicate] == 0 {
			t.Errorf("seed %d: states %v", seed, m.seen)
		}
	})
}

type fenceModel struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor
	in     rig.Input
	rng    *rand.Rand

	entries   []string
	held      map[string][]string // by consumer: entries that it ever had
	committed map[string]bool
	dropped   map[string]string // entries that were gone from the stream when this consumer, their owner, checked
	seen      map[commit.State]int
	log       []string
}

func (m *fenceModel) step() {
	consumer := []string{"a", "b", "c"}[m.rng.IntN(3)]
	switch n := m.rng.IntN(20); {
	case n < 4:
		m.entries = append(m.entries, rig.EntryOf(m.t, m.in.Deliver(consumer, rig.Order(fmt.Sprint(len(m.entries))))))
		m.note(consumer, "reads")
	case n < 12:
		m.commit(consumer)
		return // the acknowledgement does not drop the entry
	case n < 19 && len(m.entries) > 0:
		m.disturb(consumer)
	default:
		m.partition(consumer)
	}
	for id, owner := range m.owners() {
		if !slices.Contains(m.held[owner], id) {
			m.held[owner] = append(m.held[owner], id)
		}
	}
}

func (m *fenceModel) note(consumer, what string, ids ...string) {
	m.log = append(m.log, fmt.Sprint(consumer, " ", what, " ", ids))
}

// some returns up to n of the last entries.
func (m *fenceModel) some(of []string, n int) []string {
	of = of[max(0, len(of)-8):]
	var ids []string
	for _, i := range m.rng.Perm(len(of))[:min(len(of), 1+m.rng.IntN(n))] {
		ids = append(ids, of[i])
	}
	return ids
}

func (m *fenceModel) owners() map[string]string {
	m.t.Helper()
	args := &redis.XPendingExtArgs{Stream: m.in.Stream, Group: "g", Start: "-", End: "+", Count: 1000}
	pending, err := m.client.XPendingExt(m.t.Context(), args).Result()
	redistest.Must(m.t, err)
	owners := map[string]string{}
	for _, p := range pending {
		owners[p.ID] = p.Consumer
	}
	return owners
}

// disturb changes entries as a consumer, with the scripts of luatx.
func (m *fenceModel) disturb(consumer string) {
	ctx, member, ids := m.t.Context(), m.in.Member(consumer), m.some(m.entries, 3)
	var err error
	before, moved := m.owners(), false
	switch m.rng.IntN(7) {
	case 0, 1:
		m.note(consumer, "claims", ids...)
		_, err = member.Claim(ctx, 0, ids)
	case 2:
		m.note(consumer, "buries", ids[0])
		moved = deadLetter(m.t, m.in, consumer, ids[0]) == group.Moved
	case 3:
		m.note(consumer, "gives back", ids...)
		err = member.Hold(ctx, ids, time.Hour, true)
	case 4:
		m.note(consumer, "fetches", ids...)
		_, err = member.Fetch(ctx, ids...)
	case 5:
		m.note(consumer, "leaves")
		if err = member.Leave(ctx); err == nil {
			_, err = member.Dismiss(ctx, -time.Second)
		}
	case 6:
		m.note(consumer, "deletes", ids[0])
		err = m.client.XDel(ctx, m.in.Stream, ids[0]).Err()
	}
	redistest.Must(m.t, err)
	m.drops(consumer, before, moved)
}

// drops records the entries that a consumer lost because they are gone from the stream.
func (m *fenceModel) drops(consumer string, before map[string]string, moved bool) {
	after := m.owners()
	for id, owner := range before {
		if _, pending := after[id]; !pending && owner == consumer && !moved {
			m.dropped[id] = consumer
		}
	}
}

// partition makes a consumer the owner of all entries, like a member that takes a partition.
func (m *fenceModel) partition(consumer string) {
	ctx, before := m.t.Context(), m.owners()
	m.note(consumer, "takes the partition")
	redistest.Must(m.t, m.client.HSet(ctx, rig.Key(m.t, m.tr, "a", "lease"), "owner", consumer).Err())
	takePartition(m.t, m.client, m.tr, m.in, consumer, m.rng.IntN(2), m.rng.IntN(2)*2)
	m.drops(consumer, before, false)
}

// commit commits entries for a consumer that had them once.
func (m *fenceModel) commit(consumer string) {
	m.t.Helper()
	ids := m.some(m.held[consumer], 4)
	if len(ids) == 0 {
		return
	}
	m.note(consumer, "commits", ids...)
	owners := m.owners()
	for i, got := range fenced(m.t, m.tr, m.in, consumer, ids...) {
		id, want := ids[i], commit.Fenced
		switch {
		case m.committed[id]:
			want = commit.Duplicate
		case owners[id] == consumer:
			want = commit.Committed
		case m.dropped[id] == consumer:
			want = got.State // no other consumer has the entry, so both results are correct
		}
		if got.State != want {
			m.t.Errorf("%s commits %s, which is pending for %q: %s, want %s", consumer, id, owners[id], got.State, want)
		}
		m.committed[id] = m.committed[id] || got.State == commit.Committed
		m.seen[got.State]++
	}
}
