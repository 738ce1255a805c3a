package settle

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/message"
)

type tried bool

func (tried) Error() string   { return "not sent" }
func (t tried) Untried() bool { return !bool(t) }

func TestDecideMapsErrorsToFates(t *testing.T) {
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
		assert.Equal(t, Decide(c.err), c.want, "%s", name)
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
		assert.Equal(t, Pause(c.err, time.Minute), c.want, "the pause after %v", c.err)
	}
}

func TestWaitIsThatOfTheDestinationUnlessTheEventIsOutOfTurn(t *testing.T) {
	t.Parallel()
	asks := message.RetryAfter(errors.New("failure"), time.Second)
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{errors.Join(asks, ErrLater), time.Second},
		{ErrLater, 0},
		{errors.Join(asks, ErrUnavailable), time.Minute}, // the pause of the destination is at least the requested delay
		{errors.Join(asks, ErrLater, ErrUnavailable), time.Second},
	} {
		assert.Equal(t, Wait(c.err, time.Minute), c.want, "the wait after %v", c.err)
	}
}
