package redistest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestSingleStartsServerWithOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Config("maxmemory 7mb", "maxmemory-policy volatile-ttl"))
	client := s.Client(t)
	got, err := client.ConfigGet(t.Context(), "maxmemory*").Result()
	redistest.Must(t, err)
	if got["maxmemory"] != "7340032" || got["maxmemory-policy"] != "volatile-ttl" {
		t.Errorf("the server did not apply its options: %v", got)
	}
	assert.NoError(t, client.Do(t.Context(), "DEBUG", "DIGEST").Err(), "DEBUG is not allowed")
	if s.Pid() == 0 || s.Pid() == os.Getpid() {
		t.Errorf("pid %d", s.Pid())
	}
}

func TestKillKeepsOnlyPersistedData(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Config("appendonly yes", "appendfsync always"))
	client := s.Client(t)
	redistest.Must(t, client.Set(t.Context(), "k", "v", 0).Err())
	redistest.Must(t, s.Kill())
	assert.Equal(t, s.Pid(), 0, "the pid of a killed server")
	redistest.Must(t, s.Restart(t.Context()))
	assert.Equal(t, client.Get(t.Context(), "k").Val(), "v", "the key after a kill with appendfsync always")

	forgetful := redistest.Single(t, redistest.Own())
	client = forgetful.Client(t)
	redistest.Must(t, client.Set(t.Context(), "k", "v", 0).Err())
	redistest.Must(t, forgetful.Restart(t.Context()))
	if err := client.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a server without persistence has kept the key: %v", err)
	}
}

func TestPausedServerDoesNotReply(t *testing.T) {
	t.Parallel()
	s := redistest.Single(t, redistest.Own())
	client := s.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries = true, -1 })
	redistest.Must(t, client.Ping(t.Context()).Err())
	redistest.Must(t, s.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server returned %v", err)
	}
	redistest.Must(t, s.Resume())
	redistest.Must(t, client.Ping(t.Context()).Err())
}

func TestStartReportsBadConfig(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	_, err := redistest.Start(t.Context(), redistest.Config("no-such-option 1"))
	assert.ErrorContains(t, err, "no-such-option", "the start")
}

func TestExternalServerIsUsedAndNotStopped(t *testing.T) {
	owner := redistest.Single(t, redistest.Own())
	t.Setenv(redistest.EnvExternal, owner.Addr())
	s := redistest.Single(t)
	if s.Addr() != owner.Addr() || !s.External() || redistest.Shared(t).Addr() != owner.Addr() {
		t.Errorf("the test uses the server %s, want %s", s.Addr(), owner.Addr())
	}
	for name, do := range map[string]func() error{"Stop": s.Stop, "Kill": s.Kill, "Pause": s.Pause} {
		assert.Is(t, do(), redistest.ErrExternal, "%s", name)
	}
	t.Run("skips a test that needs options", func(t *testing.T) {
		redistest.Single(t, redistest.Own())
		t.Error("the test was not skipped")
	})
}

func TestFoundReturnsTheServer(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	bin, err := redistest.Find()
	redistest.Must(t, err)
	if got := redistest.Found(); !strings.Contains(got, bin.Version) || !strings.Contains(got, bin.Path) || !strings.Contains(got, "container engine") {
		t.Error(got)
	}
}
