package settle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/message"
)

type tried bool

func (tried) Error() string   { return "not sent" }
func (t tried) Untried() bool { return !bool(t) }

func TestDecide(t *testing.T) {
	t.Parallel()
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		err  error
		want Fate
	}{
		"no error":                         {nil, Sent},
		"any error":                        {failure, Retry},
		"permanent":                        {fmt.Errorf("publish: %w", message.Permanent(failure)), Park},
		"has to wait its turn":             {fmt.Errorf("publish: %w", ErrLater), GiveBack},
		"destination unavailable":          {errors.Join(failure, ErrUnavailable), GiveBack},
		"permanent, but unavailable":       {message.Permanent(ErrUnavailable), GiveBack},
		"untried":                          {fmt.Errorf("publish: %w", tried(false)), GiveBack},
		"tried":                            {tried(true), Retry},
		"asks for a pause, and was tried":  {message.RetryAfter(failure, time.Second), Retry},
		"asks for a pause, and is refused": {message.Permanent(message.RetryAfter(failure, time.Second)), Park},
	} {
		if got := Decide(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPauseIsAsLongAsTheErrorAsks(t *testing.T) {
	t.Parallel()
	failure := errors.New("failure")
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{failure, time.Minute},
		{message.RetryAfter(failure, time.Second), time.Second},
		{message.RetryAfter(failure, 0), 0},
	} {
		if got := Pause(c.err, time.Minute); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestWaitIsThatOfTheDestinationUnlessTheEventHasToWaitItsTurn(t *testing.T) {
	t.Parallel()
	asks := message.RetryAfter(errors.New("failure"), time.Second)
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{errors.Join(asks, ErrLater), time.Second},
		{ErrLater, 0},
		{errors.Join(asks, ErrUnavailable), time.Minute}, // the pause of the destination is no shorter than it asks
		{errors.Join(asks, ErrLater, ErrUnavailable), time.Second},
	} {
		if got := Wait(c.err, time.Minute); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
