package relay_test

import (
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/script"
)

// settle settles one event, and returns what was done.
func settle(t testing.TB, tr *luatx.Transactor, shard script.Shard, id, what, lease string) (string, error) {
	t.Helper()
	settled, err := tr.Scripts().Settle(t.Context(), shard, script.Settling{
		Attempts: 5, Base: time.Second, Cap: time.Minute, Retention: time.Hour,
	}, []script.Settlement{{ID: id, What: what, Lease: lease}})
	if err != nil {
		return "", err
	}
	return settled.Done[0], nil
}
