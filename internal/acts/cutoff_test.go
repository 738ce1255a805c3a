package acts_test

import (
	"testing"
	"time"

	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestCutoffReturnsAMillisecondOfTheServerThatHasEnded(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for range 20 {
		cutoff, err := acts.Cutoff(redistest.Soon(t), client)
		redistest.Must(t, err)
		now := client.Time(redistest.Soon(t)).Val()
		if cutoff.UnixNano()%int64(time.Millisecond) != 0 || !now.Truncate(time.Millisecond).After(cutoff) {
			t.Errorf("cutoff %v, and then the server's time is %v; want an earlier whole millisecond", cutoff, now)
		}
	}
}
