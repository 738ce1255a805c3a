package redistest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSingleAnswersAndTakesOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Config("maxmemory 7mb", "maxmemory-policy volatile-ttl"))
	client := s.Client(t)
	got, err := client.ConfigGet(t.Context(), "maxmemory*").Result()
	must(t, err)
	if got["maxmemory"] != "7340032" || got["maxmemory-policy"] != "volatile-ttl" {
		t.Errorf("options were not taken: %v", got)
	}
	if err := client.Do(t.Context(), "DEBUG", "DIGEST").Err(); err != nil {
		t.Errorf("DEBUG is not allowed: %v", err)
	}
	if s.Pid() == 0 || s.Pid() == os.Getpid() {
		t.Errorf("pid %d", s.Pid())
	}
}

func TestSharedIsOneServer(t *testing.T) {
	t.Parallel()
	tag := redistest.Tag(t)
	must(t, redistest.Shared(t).Client(t).Set(t.Context(), tag, "x", time.Minute).Err())
	got, err := redistest.Shared(t).Client(t).Get(t.Context(), tag).Result()
	if err != nil || got != "x" {
		t.Errorf("second use of the shared server: %q, %v", got, err)
	}
}

func TestStopSavesKillForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Config("appendonly yes", "appendfsync always"))
	client := s.Client(t)
	must(t, client.Set(t.Context(), "k", "v", 0).Err())
	must(t, s.Kill())
	if s.Pid() != 0 {
		t.Error("a killed server has a pid")
	}
	must(t, s.Restart(t.Context()))
	if got := client.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after a kill with appendfsync always: %q", got)
	}

	forgetful := redistest.Single(t, redistest.Own())
	client = forgetful.Client(t)
	must(t, client.Set(t.Context(), "k", "v", 0).Err())
	must(t, forgetful.Restart(t.Context()))
	if err := client.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a server that saves nothing remembers: %v", err)
	}
}

func TestPauseIsSilence(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Own())
	client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
	must(t, client.Ping(t.Context()).Err())
	must(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server answers %v", err)
	}
	must(t, s.Resume())
	must(t, client.Ping(t.Context()).Err())
}

func TestReplicaFollows(t *testing.T) {
	t.Parallel()
	master, replica := redistest.WithReplica(t)
	client := master.Client(t)
	must(t, client.Set(t.Context(), "k", "v", 0).Err())
	if n := client.Wait(t.Context(), 1, 5*time.Second).Val(); n != 1 {
		t.Fatalf("%d replicas acknowledged", n)
	}
	if got := replica.Client(t).Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("the replica has %q", got)
	}
}

func TestStartReportsBadConfig(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	_, err := redistest.Start(t.Context(), redistest.Config("no-such-option 1"))
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v", err)
	}
}

func TestExternalServerIsUsedAndLeftAlone(t *testing.T) {
	owner := redistest.Single(t, redistest.Own())
	t.Setenv(redistest.EnvExternal, owner.Addr())
	s := redistest.Single(t)
	if s.Addr() != owner.Addr() || !s.External() || redistest.Shared(t).Addr() != owner.Addr() {
		t.Errorf("uses %s, want %s", s.Addr(), owner.Addr())
	}
	for name, do := range map[string]func() error{"Stop": s.Stop, "Kill": s.Kill, "Pause": s.Pause} {
		if err := do(); !errors.Is(err, redistest.ErrExternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("with options it is skipped", func(t *testing.T) {
		redistest.Single(t, redistest.Own())
		t.Error("was not skipped")
	})
}

func TestTagsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		seen[redistest.Tag(t)], seen[redistest.Namespace(t)] = true, true
	}
	if len(seen) != 200 {
		t.Errorf("%d different ones of 200", len(seen))
	}
}

func TestFoundNamesTheServer(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	bin, err := redistest.Find()
	must(t, err)
	if got := redistest.Found(); !strings.Contains(got, bin.Version) || !strings.Contains(got, bin.Path) || !strings.Contains(got, "container engine") {
		t.Error(got)
	}
}
