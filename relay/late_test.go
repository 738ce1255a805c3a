package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
	"github.com/luatx/luatx/message"
)

// TestEventsOfAClaimThatTookTooLongLoseNoAttempt restarts the server during a claim, for longer than events may be published.
func TestEventsOfAClaimThatTookTooLongLoseNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const now, body = "1700000000000", `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
		began := time.Now()
		var claim, settle string // the hashes of the scripts
		server := scripted.New(func(cmd []string) any {
			switch {
			case slices.Contains(cmd, claim) && time.Since(began) < 21*time.Second:
				return errors.New("LOADING Redis is loading the dataset in memory")
			case slices.Contains(cmd, claim):
				return []any{now, "", "-8.5", 0, 0, "1", 1, "", body}
			case slices.Contains(cmd, settle):
				return []any{now, "", 0, "b"}
			}
			return scripted.Status("OK")
		})
		tr, err := luatx.New(server.Client(t), luatx.Config{Namespace: "n", Keyspace: luatx.Partitions(1)})
		if err != nil {
			t.Fatal(err)
		}
		for name, sha := range link.Of(tr).Runner.SHAs() {
			switch name {
			case "claim":
				claim = sha
			case "settle":
				settle = sha
			}
		}
		var log rig.Lines
		published := 0
		r, err := New(tr, PublisherFunc(func(context.Context, []*message.RawMessage) []error { published++; return nil }), Config{Logger: log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		r.schedule.add(r.shards[0], time.Now())
		slot, _ := r.schedule.next(t.Context())
		r.claim(t.Context(), t.Context(), slot)
		settled := server.Heard("evalsha", settle)
		if published > 0 || len(settled) != 1 || !slices.Contains(settled[0].Cmd, "back") || log.Count("no time left") != 1 {
			t.Errorf("%d calls of the publisher; settled:\n%s\nlog:\n%s", published, scripted.Words(settled), log.String())
		}
		if next, wait := r.schedule.popDue(); next != slot || wait > 0 {
			t.Errorf("slot %d is visited after %v", next, wait)
		}
	})
}
