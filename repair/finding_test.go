package repair

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestIDOfABrokenTransactionIsItsDigestOrItsPosition(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"scope\x00source\x000":            "scope source 0",
		"sixteen\x00bytes\x00in":          "sixteen bytes in",
		"sixteen bytes it":                "7369787465656e206279746573206974",
		"sixteen\x00by\x00\x00tool":       "7369787465656e0062790000746f6f6c",
		"\xff\x00\x00-bytes-binary"[:16]:  "ff00002d62797465732d62696e617279",
		strings.Repeat("a", digestSize+1): strings.Repeat("a", digestSize+1),
		strings.Repeat("a", digestSize-1): strings.Repeat("a", digestSize-1),
	} {
		if got := brokenID(field); got != want {
			t.Errorf("%q is %q, want %q", field, got, want)
		}
	}
}

func TestBoundsOfTheConfigAreValid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg   Config
		valid bool
	}{
		{Config{Step: 1}, true},
		{Config{Step: 1000}, true},
		{Config{Step: 1001}, false},
		{Config{Interval: time.Millisecond}, true},
		{Config{Interval: time.Millisecond - 1}, false},
		{Config{Lease: 100 * time.Millisecond}, true},
		{Config{Lease: 100*time.Millisecond - 1}, false},
	} {
		if err := c.cfg.withDefaults().validate(); (err == nil) != c.valid {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

// TestWorkerWaitsForTheTurnOfAnother also checks how long it waits after an error and after its own round.
func TestWorkerWaitsForTheTurnOfAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interval, held time.Duration
		broken         bool
		least, most    time.Duration
	}{
		"its own round":                  {interval: time.Hour, least: time.Hour, most: time.Hour},
		"held for a short time":          {interval: time.Hour, held: 10 * time.Second, least: 8 * time.Second, most: 10*time.Second + minLease},
		"held longer than its interval":  {interval: time.Minute, held: time.Hour, least: time.Minute, most: time.Minute + minLease},
		"an error, with a long interval": {interval: time.Hour, broken: true, least: stepTimeout, most: stepTimeout},
		"an error, with a short one":     {interval: time.Second, broken: true, least: time.Second, most: time.Second},
	} {
		_, client := redistest.Mini(t)
		tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(1), NoHistory: true})
		redistest.Must(t, err)
		w, err := New(tr, Config{Interval: c.interval, Logger: slog.New(slog.DiscardHandler)})
		redistest.Must(t, err)
		inside, ctx := link.Of(tr), redistest.Soon(t)
		home := inside.Scripts.Shard(tr.Keyspace().Slots()[0])
		if c.held > 0 {
			turned, err := inside.Scripts.Turn(ctx, home, shard.Turning{Owner: "another", Hold: c.held, Interval: c.held, At: shard.NoPlace})
			if err != nil || !turned.Mine {
				t.Fatal(turned, err)
			}
		}
		if c.broken {
			redistest.Must(t, client.Set(ctx, home.Key("repair"), "v", 0).Err())
		}
		if got := w.turn(ctx); got < c.least || got > c.most {
			t.Errorf("%s: waits for %v, want %v to %v", name, got, c.least, c.most)
		}
	}
}

func TestReportSaysWhetherTheWorkerMakesARound(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), Keyspace: luatx.Partitions(1), NoHistory: true})
	redistest.Must(t, err)
	w, err := New(tr, Config{Interval: time.Hour})
	redistest.Must(t, err)
	var during atomic.Int64
	server.Server().SetPreHook(func(*miniserver.Peer, string, ...string) bool {
		during.Store(max(during.Load(), w.report().InFlight))
		return false
	})
	for _, c := range []struct {
		turn string
		want int64
	}{{"its turn", 1}, {"a turn that is not due", 0}} {
		during.Store(0)
		w.turn(redistest.Soon(t))
		if got, after := during.Load(), w.report().InFlight; got != c.want || after != 0 {
			t.Errorf("%s: reports %d during its commands and %d afterwards, want %d and 0", c.turn, got, after, c.want)
		}
	}
}

func TestWalkEndsWithItsReaderItsContextOrALostTurn(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		reads bool
		err   error
		want  bool
	}{
		"an error":           {true, refused, true},
		"the reader stopped": {false, refused, false},
		"the turn is lost":   {true, errors.Join(errTurnLost, refused), false},
	} {
		l := look{yield: func(Finding, error) bool { return c.reads }}
		if got := l.failed(t.Context(), c.err); got != c.want {
			t.Errorf("%s: continues: %t", name, got)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if (look{yield: func(Finding, error) bool { return true }}).failed(ended, refused) {
		t.Error("continues after the end of its context")
	}
}
