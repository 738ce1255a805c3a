package commit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// move copies a string, as a command with two keys does.
var move = luatx.Procedure{
	Name: "move", Keys: []string{"from", "to"},
	Source: `local value = redis.call('GET', from) or '1' redis.call('SET', to, value) return value`,
}

// steps are commands whose K, L and M are keys of numbers, H and S of a hash and a stream. A step without a command is a call of
// move.
var steps = []string{
	"SET K 1", "SET K 22 EX 1000", "INCR K", "APPEND K 3", "GETSET K 4", "SETRANGE K 0 5", "MGET K L M", "DEL K L", "EXISTS K", "MSET K 6 L 7",
	"HSET H f 1", "HSET H f 2 g 3 h 4", "HINCRBY H f 5", "HGET H f", "HDEL H f g", "XADD S * f v", "XLEN S", "",
}

// TestTransactionActsAsIfItsCommandsRanAsRecorded compares random transactions with the same commands outside of one. A commit
// may run them in another order, whose undo costs less.
func TestTransactionActsAsIfItsCommandsRanAsRecorded(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client, withProcedures(move))
		for round := range 150 {
			keys := func(twin string) []string {
				var list []string
				for _, name := range []string{"K", "L", "M", "H", "S"} {
					list = append(list, rig.Key(t, tr, "a", fmt.Sprint(name, round, twin)))
				}
				return list
			}
			here, there := keys("here"), keys("there")
			list := make([]string, 2+rand.IntN(5)) //nolint:gosec // a test
			for i := range list {
				list[i] = steps[rand.IntN(len(steps))] //nolint:gosec // a test
			}
			shift := rand.IntN(3) //nolint:gosec // a test
			var committed []*redis.Cmd
			_, err := tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
				committed = nil
				for i, step := range list {
					names := turned(here, i+shift)
					if step == "" {
						committed = append(committed, tx.Call("move", names[:2]))
						continue
					}
					committed = append(committed, tx.Pipeline().Do(ctx, filled(step, names)...))
				}
				return nil
			}, luatx.WithID(fmt.Sprint(round)))
			redistest.Must(t, err)
			for i, step := range list {
				want := apart(ctx, client, step, turned(there, i+shift))
				if got := committed[i]; !strings.HasPrefix(step, "XADD") && fmt.Sprint(got.Val(), got.Err()) != fmt.Sprint(want.Val(), want.Err()) {
					t.Errorf("%q: reply %d is %v, want %v", list, i, got, want)
				}
			}
			for i := range here {
				if got, want := content(ctx, client, here[i]), content(ctx, client, there[i]); got != want {
					t.Errorf("%q: key %d has %s, want %s", list, i, got, want)
				}
			}
		}
	})
}

// turned returns the keys with those of the numbers in another order.
func turned(keys []string, by int) []string {
	by %= 3
	return append(append(append([]string{}, keys[by:3]...), keys[:by]...), keys[3:]...)
}

// filled returns the arguments of a step.
func filled(step string, keys []string) (args []any) {
	for word := range strings.FieldsSeq(step) {
		if at := strings.Index("KLMHS", word); at >= 0 && len(word) == 1 {
			word = keys[at]
		}
		args = append(args, word)
	}
	return args
}

// apart runs a step without a transaction.
func apart(ctx context.Context, client redis.UniversalClient, step string, keys []string) *redis.Cmd {
	if step != "" {
		return client.Do(ctx, filled(step, keys)...)
	}
	value := client.Do(ctx, "GET", keys[0])
	if value.Err() != nil {
		value = redis.NewCmdResult("1", nil)
	}
	client.Set(ctx, keys[1], value.Val(), 0)
	return value
}

// content returns what a key has, except the ids of a stream.
func content(ctx context.Context, client redis.UniversalClient, key string) string {
	switch kind := client.Type(ctx, key).Val(); kind {
	case "string":
		return fmt.Sprint(client.Get(ctx, key).Val(), client.TTL(ctx, key).Val() > 0)
	case "hash":
		return fmt.Sprint(client.HGetAll(ctx, key).Val())
	case "stream":
		return fmt.Sprint(client.XLen(ctx, key).Val(), " entries")
	default:
		return kind
	}
}
