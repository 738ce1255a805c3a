package luatxtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
)

// Config configures New. Its zero value works.
type Config struct {
	// Transactor is the service's configuration. Its Namespace defaults to a random one.
	Transactor luatx.Config
	// Server runs a real redis-server, found on PATH or named by LUATX_TEST_REDIS, instead of the embedded one. Where there
	// is none the test is skipped, and fails where the variable CI is set.
	Server bool
}

// Env is a process of a service, as a test sees it: a Transactor with a client, on a Redis of the test's own.
type Env struct {
	*luatx.Transactor
	// Client is what adapters use beside the Transactor.
	Client *redis.Client

	t       testing.TB
	cfg     Config
	addr    string
	mini    *miniredis.Miniredis // nil: a real server
	proxy   *respproxy.Proxy
	scripts map[string]string // SHA by name
	ctx     context.Context   //nolint:containedctx // it is the life of the process that Env stands for
	die     context.CancelFunc
}

// New returns a Transactor on a new, empty Redis, which ends with the test. The Redis is embedded unless Config says
// otherwise: fast, with a clock of the test's (Advance), and without the few things that docs/testing.md lists.
func New(t testing.TB, change ...func(*Config)) *Env {
	t.Helper()
	e := &Env{t: t}
	for _, c := range change {
		c(&e.cfg)
	}
	e.cfg.Transactor.Namespace = cmp.Or(e.cfg.Transactor.Namespace, "test"+strings.ToLower(rand.Text()[:8]))
	if e.cfg.Server {
		e.addr = startServer(t)
	} else {
		e.mini = miniredis.RunT(t)
		e.addr = e.mini.Addr()
	}
	e.begin()
	return e
}

// startServer returns the address of a real server.
func startServer(t testing.TB) string {
	t.Helper()
	server, err := redistest.Start(t.Context())
	switch {
	case errors.Is(err, redistest.ErrNoServer) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Addr()
}

// begin is the start of a process.
func (e *Env) begin() {
	e.t.Helper()
	var err error
	e.proxy, err = respproxy.New(e.addr)
	redistest.Must(e.t, err)
	e.t.Cleanup(func() { _ = e.proxy.Close() }) // nothing of the test is lost with it
	e.ctx, e.die = context.WithCancel(e.t.Context())
	e.t.Cleanup(e.die)
	e.Client = redistest.Client(e.t, e.proxy.Addr())
	e.Transactor, err = luatx.New(e.Client, e.cfg.Transactor)
	redistest.Must(e.t, err)
	redistest.Must(e.t, link.Of(e.Transactor).Runner.Load(e.ctx)) // so that a commit is one request
	e.scripts = maps.Collect(link.Of(e.Transactor).Runner.SHAs())
}

// Context ends when the process dies (Crash), and with the test. Give it to what the process runs.
func (e *Env) Context() context.Context { return e.ctx }

// Now is the time by the clock of Redis, which is the only one that luatx goes by.
func (e *Env) Now() time.Time {
	e.t.Helper()
	now, err := e.Client.Time(e.t.Context()).Result()
	redistest.Must(e.t, err)
	return now
}

// Advance moves the clock of the embedded Redis forward, and lets keys expire meanwhile. From the first call on the clock
// stands still in between. All of luatx that has to do with time in Redis follows it: leases, pauses after failures,
// scheduled events and timers, what the inbox and the outbox remember. How often relays and workers look is theirs:
// configure a short SweepInterval, or the like. A real server's clock cannot be moved: there the test fails.
func (e *Env) Advance(d time.Duration) {
	e.t.Helper()
	switch {
	case e.mini == nil:
		e.t.Fatal("luatxtest: the clock of a real server cannot be moved: leave Config.Server out")
	case d < 0:
		e.t.Fatalf("luatxtest: Advance(%v): time goes forward", d)
	}
	e.mini.SetTime(e.Now().Add(d))
	e.mini.FastForward(d)
}
