package relay

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

// sweeps returns a sweeper of 513 shards, in three chunks, whose server gives the answers.
func sweeps(t *testing.T, log *rig.Lines, cfg Config, sweep, exists func() any) (*sweeper, *scripted.Server) {
	t.Helper()
	server := scripted.New(func(cmd []string) any {
		switch strings.ToLower(cmd[0]) {
		case "sweep":
			return sweep()
		case "exists":
			return exists()
		}
		return scripted.Status("OK")
	}, "sweep")
	tr, err := luatx.New(server.Client(t), luatx.Config{Namespace: "n", Keyspace: luatx.Partitions(513)})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = log.Logger()
	r, err := New(tr, PublisherFunc(nil), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &sweeper{Relay: r, chunks: 3, pause: r.cfg.SweepInterval / 3, quiet: 3}, server
}

func chunk(n int) func() any { return func() any { return []any{"1700000000000", n, "40"} } }

func answers(a any) func() any { return func() any { return a } }

func TestSweepVisitsEachShardOfItsChunkOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for n, want := range []int{256, 256, 1} {
			var log rig.Lines
			s, server := sweeps(t, &log, Config{SweepInterval: 3 * time.Second}, chunk(n), answers(1))
			wait := s.turn(t.Context())
			if got := len(server.Heard("exists")); got != want || len(s.schedule.queue) != want {
				t.Errorf("chunk %d: %d shards are looked at and %d scheduled, want %d", n, got, len(s.schedule.queue), want)
			}
			if wait < 40*time.Millisecond || wait > 165*time.Millisecond {
				t.Errorf("chunk %d: the next is requested after %v", n, wait)
			}
		}
	})
}

func TestSweepRequestsItsNextChunkAfterAWhileThatVaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for interval, most := range map[time.Duration]time.Duration{3 * time.Second: 125 * time.Millisecond, time.Minute: 125 * time.Millisecond, 300 * time.Millisecond: 12500 * time.Microsecond, 3: 0} {
			var log rig.Lines
			s, server := sweeps(t, &log, Config{SweepInterval: interval}, chunk(-1), answers(1))
			longest := time.Duration(0)
			for range 400 {
				wait := s.turn(t.Context()) - 40*time.Millisecond
				if longest = max(longest, wait); wait < 0 || wait > most {
					t.Fatalf("an interval of %v: the next is requested %v after its time", interval, wait)
				}
			}
			if longest < most*9/10 || len(server.Heard("exists")) > 0 {
				t.Errorf("an interval of %v: at most %v after its time, want %v", interval, longest, most)
			}
		}
	})
}

func TestSweepThatFailsLeavesLaterChunksToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log rig.Lines
		down := true
		s, _ := sweeps(t, &log, Config{SweepInterval: 300 * time.Millisecond, PauseCap: time.Second}, chunk(0), func() any {
			if down {
				return errors.New("CLUSTERDOWN odd")
			}
			return 1
		})
		longest := time.Duration(0)
		for range 200 {
			s.fails = 0
			longest = max(longest, s.turn(t.Context()))
		}
		if most := 252500 * time.Microsecond; longest > most || longest < most*8/10 { // 40 ms, the jitter, and twice the pause
			t.Errorf("after a failure %v at most, want %v", longest, most)
		}
		for range 200 {
			longest = max(longest, s.turn(t.Context()))
		}
		if most := 1052500 * time.Microsecond; longest > most || longest < most*8/10 {
			t.Errorf("after many failures %v at most, want %v", longest, most)
		}
		if n := log.Count("sweep failed"); n != 1 {
			t.Errorf("%d lines about it", n)
		}
		down = false
		for range 3 {
			s.turn(t.Context())
		}
		if s.fails != 0 {
			t.Errorf("%d failures are counted after success", s.fails)
		}
		down = true
		if s.turn(t.Context()); log.Count("sweep failed") != 2 {
			t.Error("another outage is not logged")
		}
	})
}

func TestSweepThatIsNotSharedVisitsEachChunkInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for interval, alone := range map[time.Duration]time.Duration{300 * time.Millisecond: 3 * time.Second, time.Minute: 10 * time.Second} {
			var log rig.Lines
			s, server := sweeps(t, &log, Config{SweepInterval: interval}, answers(errors.New("ERR odd")), answers(0))
			for i := range 3 {
				if wait := s.turn(t.Context()); wait != s.pause || s.own != (i+1)%3 {
					t.Errorf("visit %d: the next after %v is of chunk %d", i, wait, s.own)
				}
			}
			if left := time.Until(s.alone); left != alone || log.Count("sweep not shared") != 1 || len(server.Heard("sweep")) != 1 || len(server.Heard("exists")) != 513 {
				t.Errorf("an interval of %v: alone for %v, want %v; %d shards are looked at:\n%s", interval, left, alone, len(server.Heard("exists")), log.String())
			}
			time.Sleep(alone)
			if s.turn(t.Context()); len(server.Heard("sweep")) != 2 {
				t.Error("it does not request a chunk again")
			}
		}
	})
}
