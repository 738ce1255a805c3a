package commit_test

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/rig"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

// TestCheck holds what is looked at before the first commit: eviction, which forgets ids, and that a managed
// service may deny to tell.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own(), redistest.Config("maxmemory-policy allkeys-lru"))
	admin := server.Admin(t)
	ctx := redistest.Soon(t)
	if err := admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	denied := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	for name, c := range map[string]struct {
		client *redis.Client
		strict bool
		err    string
		log    []string // a warning each
	}{
		"warns":     {admin, false, "", []string{"evict keys"}},
		"is strict": {admin, true, "allkeys-lru", nil},
		"is denied": {denied, true, "", []string{"command=INFO"}},
	} {
		log := &rig.Lines{}
		tr, err := luatx.New(c.client, luatx.Config{
			Namespace: redistest.Namespace(t), StrictEviction: c.strict, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		commit := func() error {
			_, err := tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("1"))
			return err
		}
		for range 2 {
			if err := commit(); c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := strings.Count(log.String(), "level=WARN"); got != len(c.log) {
			t.Errorf("%s: %d warnings, want %d: %s", name, got, len(c.log), log)
		}
		for _, text := range c.log {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: the log does not say %q: %s", name, text, log)
			}
		}
	}
}

func TestCheckFailsAfterCommitTimeoutIfThereIsNoServer(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	tr, err := luatx.New(client, luatx.Config{Namespace: "n", CommitTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx := redistest.Soon(t)
	if err := tr.Check(ctx); !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
		t.Errorf("%v; its caller waits: %v", err, ctx.Err())
	}
}

// TestCheckEnds holds that a server which does not answer does not hold Check up for as long as its caller would wait.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	proxy.On(func(cmd []string) respproxy.Action {
		if strings.EqualFold(cmd[0], "EVALSHA") {
			return respproxy.CutRequest()
		}
		return respproxy.Pass()
	})
	tr, err := luatx.New(redistest.Client(t, proxy.Addr()), luatx.Config{Namespace: redistest.Namespace(t), CommitTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx := redistest.Soon(t)
	if err := tr.Check(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("%v; its caller waits: %v", err, ctx.Err())
	}
}
