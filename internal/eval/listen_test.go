package eval

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/scripted"
)

// listen subscribes to channel c of a server that answers pings as a test says, and returns the slots that were heard.
func listen(ctx context.Context, t *testing.T, ping func(n int) any) (heard []int, took time.Duration, err error) {
	t.Helper()
	pings := 0
	s := scripted.New(func(cmd []string) any {
		switch cmd[0] {
		case "ssubscribe":
			return errors.New("ERR unknown command 'ssubscribe'")
		case "subscribe":
			return []any{"subscribe", cmd[1], 1}
		case "ping":
			pings++
			return ping(pings)
		}
		return scripted.Status("OK")
	})
	began := time.Now()
	err = New(s.Client(t), "n", slog.New(slog.DiscardHandler)).Listen(ctx, []string{"c"}, func(slot int) { heard = append(heard, slot) })
	return heard, time.Since(began), err
}

func TestSilentSubscriptionIsPingedAndThenGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, took, err := listen(t.Context(), t, func(n int) any {
			if n < 3 {
				return []any{"pong", ""}
			}
			time.Sleep(time.Hour)
			return nil
		})
		if want := 4 * wakeSilence; !errors.Is(err, errSilent) || took != want {
			t.Errorf("%v after %v, want errSilent after %v", err, took, want)
		}
	})
}

func TestSubscriptionHearsOnlySlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		texts := []string{"0", "-1", "16383", "16384", "x", "", "7"}
		ctx, cancel := context.WithCancel(t.Context())
		heard, _, err := listen(ctx, t, func(n int) any {
			if n > len(texts) {
				cancel()
				return []any{"pong", ""}
			}
			return []any{"message", "c", texts[n-1]}
		})
		if !errors.Is(err, context.Canceled) || !slices.Equal(heard, []int{0, 16383, 7}) {
			t.Errorf("heard %v, %v", heard, err)
		}
	})
}
