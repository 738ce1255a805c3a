package stack

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

func TestMissingRelayIsLoggedOnceAndARunningOneIsNot(t *testing.T) {
	t.Parallel()
	type step struct {
		after    time.Duration
		attached bool
		outputs  int
		err      error
	}
	for name, c := range map[string]struct {
		steps []step
		said  int
	}{
		"forgotten":          {[]step{{0, false, 1, nil}, {relayPatience, false, 1, nil}, {time.Hour, false, 1, nil}}, 1},
		"there":              {[]step{{0, true, 1, nil}, {time.Hour, true, 1, nil}}, 0},
		"late":               {[]step{{0, false, 1, nil}, {relayPatience - 1, false, 1, nil}, {1, true, 1, nil}, {time.Hour, true, 1, nil}}, 0},
		"stopped":            {[]step{{0, true, 1, nil}, {time.Hour, false, 1, nil}, {relayPatience, false, 2, nil}}, 1},
		"started again":      {[]step{{0, false, 1, nil}, {1, true, 1, nil}, {relayPatience, false, 1, nil}}, 0},
		"no events":          {[]step{{0, false, 0, nil}, {time.Hour, false, 0, nil}}, 0},
		"handler has failed": {[]step{{0, false, 1, errors.New("failed")}, {time.Hour, false, 1, errors.New("failed")}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				var now step
				w := &relayWatch{attached: func() bool { return now.attached }, logger: slog.New(slog.NewTextHandler(&log, nil))}
				process := w.wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
					return make([]*message.Message, now.outputs), now.err
				})
				for _, now = range c.steps {
					<-time.After(now.after)
					if out, err := process(t.Context(), nil); len(out) != now.outputs || !errors.Is(err, now.err) {
						t.Errorf("%d outputs, error %v", len(out), err)
					}
				}
				if said := strings.Count(log.String(), "run relay.New"); said != c.said {
					t.Errorf("said %d times, want %d: %s", said, c.said, &log)
				}
			})
		})
	}
}
