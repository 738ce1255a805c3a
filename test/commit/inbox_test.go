package commit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/alicebob/miniredis/v2"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// start is when the tests' clocks begin.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// atClock returns a server with a clock of its own, and a Transactor on it.
func atClock(t testing.TB, now time.Time) (*miniredis.Miniredis, *luatx.Transactor) {
	t.Helper()
	server, client := redistest.Mini(t)
	server.SetTime(now)
	return server, rig.NewTransactor(t, client)
}

// TestInboxGenerations walks the server's clock through the life of an inbox.
func TestInboxGenerations(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	commit := func(id string) luatx.Outcome {
		t.Helper()
		result, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID(id))
		if err != nil {
			t.Fatal(err)
		}
		return result.Outcome
	}
	for _, step := range []struct {
		at   time.Duration
		id   string
		want luatx.Outcome
	}{
		{0, "first", luatx.Committed},
		{23 * time.Hour, "first", luatx.Duplicate},
		{23 * time.Hour, "late", luatx.Committed},
		{25 * time.Hour, "second", luatx.Committed}, // turns the generations over
		{25 * time.Hour, "first", luatx.Duplicate},  // older than the retention, still in the older generation
		{47 * time.Hour, "late", luatx.Duplicate},   // known for at least the retention
		{50 * time.Hour, "second", luatx.Duplicate}, // turns over again: first and late go
		{50 * time.Hour, "late", luatx.Committed},
		{50 * time.Hour, "second", luatx.Duplicate},
		{40 * time.Hour, "second", luatx.Duplicate}, // a failover to a slower clock
		{40 * time.Hour, "third", luatx.Committed},
		{63 * time.Hour, "third", luatx.Duplicate},
		{64 * time.Hour, "fourth", luatx.Committed}, // turns over by the slower clock
		{88 * time.Hour, "third", luatx.Committed},  // known for at most twice the retention, by the slower clock
		{200 * time.Hour, "third", luatx.Committed}, // nobody came by for long: both generations went
		{200 * time.Hour, "late", luatx.Committed},
	} {
		server.SetTime(start.Add(step.at))
		if got := commit(step.id); got != step.want {
			t.Errorf("after %v %s: %v, want %v", step.at, step.id, got, step.want)
		}
	}
}

// TestTombstonesOutliveARotation holds that a token which may never commit is found in either generation, that a later
// tombstone which is needed for a shorter time does not end it, and that a tombstone does not pass for a duplicate.
func TestTombstonesOutliveARotation(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	home := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	if _, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("x")); err != nil {
		t.Fatal(err)
	}
	server.SetTime(start.Add(24*time.Hour - time.Minute))
	until := start.Add(24*time.Hour + 4*time.Minute)
	digest, token := "0123456789abcdef", "base5678\x00\x01"
	for _, resolved := range []struct {
		token string
		until time.Time
	}{{token, until}, {"other678\x00\x01", start.Add(24*time.Hour - 30*time.Second)}} {
		if state, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, digest, resolved.token, resolved.until); err != nil || state != "tombstoned" {
			t.Fatal(state, err)
		}
	}
	late := luatxTx(digest, token, until)
	for _, at := range []time.Duration{24*time.Hour - time.Minute, 24*time.Hour + time.Minute, 24*time.Hour + 2*time.Minute} {
		server.SetTime(start.Add(at)) // the second one turns the generations over
		outcomes, _, err := rig.Commit(ctx, tr, home, late)
		if err != nil || outcomes[0].State != "expired" {
			t.Errorf("after %v the tombstoned token: %v, %v", at, outcomes, err)
		}
	}
	outcomes, _, err := rig.Commit(ctx, tr, home, luatxTx(digest, "base5678\x00\x02", until))
	if err != nil || outcomes[0].State != "committed" {
		t.Errorf("the next token of the same delivery: %v, %v", outcomes, err)
	}
}

// TestBatch holds that the transactions of one script stand by themselves.
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Every(t, testBatch)
}

// TestKnownBeforeTooLate holds that the late retry of a committed token hears that it is in.
func TestKnownBeforeTooLate(t *testing.T) {
	t.Parallel()
	ctx := redistest.Soon(t)
	server, tr := atClock(t, start)
	shard := link.Of(tr).Scripts.Shard(slot.OfTag("a"))
	batch := luatxTx("0123456789abcdef", "base5678\x00\x01", start.Add(time.Minute))
	for _, want := range []string{"committed", "replayed"} {
		outcomes, _, err := rig.Commit(ctx, tr, shard, batch)
		if err != nil || string(outcomes[0].State) != want {
			t.Fatalf("%v, %v; want %s", outcomes, err, want)
		}
		server.SetTime(start.Add(2 * time.Minute))
	}
	if _, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return errors.New("not known") }, luatx.WithID("other")); err == nil {
		t.Error("an id that is not known is taken for a duplicate")
	}
}
