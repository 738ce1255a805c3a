package admin_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

func TestOperatorSeesGroupsDeadLettersAndPositionsOfTriggers(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 1)
		key := "{" + redistest.Tag(t) + "}:mails"
		add := func(n int) {
			for range n {
				redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"data", "v"}}).Err())
			}
		}
		position := func() (behind int64, last string, oldest time.Time) {
			p, err := op.Position(ctx, key, key+":last")
			redistest.Must(t, err)
			return p.Behind, p.Last, p.Oldest
		}
		if behind, last, oldest := position(); behind != 0 || last != "" || !oldest.IsZero() {
			t.Errorf("position of an empty stream: %d behind %q, since %v", behind, last, oldest)
		}
		add(3)
		connector := trigger.Connector{Client: client}
		base := trigger.Config{Connector: connector, Mode: trigger.ModeStream, Stream: key, LastID: "0", BlockTimeout: 10 * time.Millisecond}
		plain, grouped := base, base
		plain.Function, plain.LastIDKey = "index", key+":last"
		plain.Run = func(context.Context, *message.RawMessage) error { return nil }
		grouped.Function, grouped.Group = "send", "mailers"
		grouped.Run = func(context.Context, *message.RawMessage) error { return message.Permanent(context.Canceled) }
		stop := admintest.Running(t, trigger.New(plain).Run)
		admintest.Running(t, trigger.New(grouped).Run)
		redistest.Eventually(t, "the position to be kept", func() bool {
			behind, last, _ := position()
			return behind == 0 && last != ""
		})
		redistest.Eventually(t, "the dead letters to be seen", func() bool {
			for s, err := range op.Streams(ctx, key) {
				redistest.Must(t, err)
				return s.DeadLetters == 3 && len(s.Groups) == 1 && s.Groups[0].Name == "mailers" && s.Groups[0].Pending == 0
			}
			return false
		})
		stop()
		add(2)
		if behind, _, oldest := position(); behind != 2 || time.Since(oldest).Abs() > time.Minute {
			t.Errorf("%d behind, since %v", behind, oldest)
		}
		add(99)
		if behind, _, _ := position(); behind != -1 {
			t.Errorf("%d behind", behind)
		}
		redistest.Must(t, client.Del(ctx, key+":last").Err())
		redistest.Must(t, client.LPush(ctx, key+":last", "x").Err())
		if _, err := op.Position(ctx, key, key+":last"); err == nil {
			t.Error("a key with a list is accepted as a position")
		}
	})
}
