package inbox_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

func TestGenerationsAreNumberedFromOneAndAboveTheStoredOne(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		inside := link.Of(rig.NewTransactor(t, client))
		for _, c := range []struct {
			field        string
			renew        bool
			stored, want int64
		}{
			{"f", false, 0, 0},
			{"f", true, 0, 1},
			{"f", false, 0, 1},
			{"f", true, 0, 2},
			{"g", false, 0, 0},
			{"g", false, 5, 5},
			{"g", true, 5, 6},
			{"f", true, 7, 8},
			{"f", false, 3, 8},
			{"f", true, 3, 9},
		} {
			got, err := inside.Scripts.Generation(redistest.Soon(t), inside.First, c.field, c.renew, c.stored)
			redistest.Must(t, err)
			assert.Equal(t, got, c.want, "%+v", c)
		}
	})
}
