package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Single starts a server for this test; it ends with the test. Without options it may be an external server, which
// others use as well: ask for Own to stop, kill or flush it.
func Single(t testing.TB, opts ...Option) *Server {
	t.Helper()
	if addr := os.Getenv(EnvExternal); addr != "" {
		if len(opts) == 0 {
			return externalServer(t, addr)
		}
		t.Skipf("needs its own server, but %s selects an external one", EnvExternal)
	}
	return start(t, opts...)
}

// Shared returns the one server of this test process. Tests that use it, in parallel, keep apart by Tag and Namespace;
// they neither flush, stop nor reconfigure it. Main ends it.
func Shared(t testing.TB) *Server {
	t.Helper()
	if addr := os.Getenv(EnvExternal); addr != "" {
		return externalServer(t, addr)
	}
	Need(t)
	s, err := sharedServer()
	Must(t, err)
	return s
}

// WithReplica starts a master and a replica that is in sync with it.
func WithReplica(t testing.TB, opts ...Option) (master, replica *Server) {
	t.Helper()
	ownServers(t)
	master = start(t, opts...)
	return master, Replica(t, master, opts...)
}

// Replica starts one more replica of the master and waits until it is in sync.
func Replica(t testing.TB, master *Server, opts ...Option) *Server {
	t.Helper()
	ownServers(t)
	replica := start(t, append(opts, Config(fmt.Sprintf("replicaof 127.0.0.1 %d", master.port)))...)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	Must(t, poll(ctx, pollEvery, func() error { return replica.inSync(ctx) }))
	return replica
}

// Client returns a new client of the address with go-redis' defaults, changed by the functions given; it is closed
// when the test ends. With LUATX_TEST_ACL it is the user of docs/acl.md, as are all clients but those of Admin.
func Client(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	opts := &redis.Options{Addr: addr}
	login(&opts.Username, &opts.Password)
	for _, f := range change {
		f(opts)
	}
	return closed(t, redis.NewClient(opts))
}

// closed closes a resource when the test ends, and returns it.
func closed[C io.Closer](t testing.TB, c C) C {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// Tag returns a random text for the braces of a key.
func Tag(t testing.TB) string {
	t.Helper()
	return "t" + random()
}

// Namespace returns a random namespace.
func Namespace(t testing.TB) string {
	t.Helper()
	return "ns" + random()
}

func random() string { return strings.ToLower(rand.Text()[:10]) }

// Main runs the tests, ends the shared servers, and fails where goroutines are left. It does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	err := shared.close()
	if code == 0 && err == nil {
		err = leaked(opts)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "redistest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// AtEnd has Main call f when the tests have ended.
func AtEnd(f func() error) { shared.add(f) }

// leaked looks for goroutines that are left for longer than go-redis takes to end: one that dials a server that is gone
// sees once a second whether its client has been closed.
func leaked(opts []goleak.Option) (err error) {
	for range 6 { // half a second each
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}

func start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	Need(t)
	s, err := Start(t.Context(), opts...)
	Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.addr, s.Log(20))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Need skips the test where there is no server, and fails it in CI.
func Need(t testing.TB) {
	t.Helper()
	_, err := Find()
	switch {
	case err == nil:
	case os.Getenv(envCI) != "" || os.Getenv(EnvBinary) != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// ownServers skips the test where all tests are to use an external server.
func ownServers(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvExternal) != "" {
		t.Skipf("needs its own servers, but %s selects an external one", EnvExternal)
	}
}

func externalServer(t testing.TB, addr string) *Server {
	t.Helper()
	s := &Server{addr: addr, external: true}
	if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
		t.Fatalf("connect to the external server in %s: %v", EnvExternal, err)
	}
	return s
}

// shared is what a test process keeps until its end.
var shared closers

type closers struct {
	mu   sync.Mutex
	list []func() error
}

func (c *closers) add(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, f)
}

func (c *closers) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, f := range c.list {
		errs = append(errs, f())
	}
	c.list = nil
	return errors.Join(errs...)
}

var sharedServer = sync.OnceValues(func() (*Server, error) {
	s, err := Start(context.Background())
	if err == nil {
		shared.add(s.Close)
	}
	return s, err
})
