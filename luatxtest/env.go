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

// Config configures New. The zero value is usable.
type Config struct {
	// Transactor is the configuration of the service. Its Namespace defaults to a random one, and NoCompile is always set, so that
	// Crash and Disturb find every commit.
	Transactor luatx.Config
	// Server runs a real redis-server instead of the embedded one. The server is searched on PATH, or named by LUATX_TEST_REDIS.
	// If there is none, the test is skipped or, if the variable CI is set, fails.
	Server bool
}

// Env simulates a process of a service: a Transactor with a client, on a Redis that belongs to the test.
type Env struct {
	*luatx.Transactor
	// Client is the client that adapters use besides the Transactor.
	Client *redis.Client

	t       testing.TB
	cfg     Config
	addr    string
	mini    *miniredis.Miniredis // nil with a real server
	proxy   *respproxy.Proxy
	scripts map[string]string // SHA by name
	ctx     context.Context   //nolint:containedctx // it is the life of the process that Env stands for
	die     context.CancelFunc
}

// New returns a Transactor on a new, empty Redis that ends with the test. By default, the Redis is embedded: it is fast, the test
// can move its clock (Advance), and it lacks the few features that docs/testing.md lists.
func New(t testing.TB, change ...func(*Config)) *Env {
	t.Helper()
	e := &Env{t: t}
	for _, c := range change {
		c(&e.cfg)
	}
	e.cfg.Transactor.NoCompile = true // a compiled script is none of those that script knows
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

// startServer starts a real server and returns its address.
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

// begin starts the simulated process.
func (e *Env) begin() {
	e.t.Helper()
	var err error
	e.proxy, err = respproxy.New(e.addr)
	redistest.Must(e.t, err)
	e.t.Cleanup(func() { _ = e.proxy.Close() }) // an error does not matter to the test
	e.ctx, e.die = context.WithCancel(e.t.Context())
	e.t.Cleanup(e.die)
	e.Client = redistest.Client(e.t, e.proxy.Addr())
	e.Transactor, err = luatx.New(e.Client, e.cfg.Transactor)
	redistest.Must(e.t, err)
	redistest.Must(e.t, link.Of(e.Transactor).Runner.Load(e.ctx)) // so that a commit is a single request
	e.scripts = maps.Collect(link.Of(e.Transactor).Runner.SHAs())
}

// Context returns a context that ends when the process dies (Crash) or the test ends. Pass it to everything that the process
// runs.
func (e *Env) Context() context.Context { return e.ctx }

// Now returns the time of the Redis clock, the only clock that luatx uses.
func (e *Env) Now() time.Time {
	e.t.Helper()
	now, err := e.Client.Time(e.t.Context()).Result()
	redistest.Must(e.t, err)
	return now
}

// Advance moves the clock of the embedded Redis forward by d and expires keys. After the first call, the clock moves only in
// Advance. Everything that depends on Redis time follows: leases, pauses after failures, scheduled events and timers, and the
// retention of the inbox and the outbox. To make the inbox forget an id, advance by the retention and commit in its shard, twice.
// Relays and workers still poll in real time, so configure short intervals, such as SweepInterval. With a real server, Advance
// fails the test.
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
