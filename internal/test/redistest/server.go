package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/apt"
	"github.com/luatx/luatx/internal/test/child"
)

const (
	startTimeout = 30 * time.Second
	startTries   = 5
	pollEvery    = 5 * time.Millisecond
)

// ErrExternal is returned where a server that the package did not start should be stopped, killed or paused.
var ErrExternal = errors.New("redistest: the server is external; use Own to start a server for the test")

// Server is one Redis server. Its methods may be called from several goroutines.
type Server struct {
	bin      Binary
	port     int
	addr     string
	dir      string
	under    []string
	args     []string
	external bool

	mu   sync.Mutex
	proc *child.Process
}

// Option changes how a server is started.
type Option func(*options)

type options struct {
	lines []string
	under []string
	args  []string
}

// Config adds lines of the configuration file, such as "appendonly yes". A later line wins over an earlier one and
// over the defaults.
func Config(lines ...string) Option {
	return func(o *options) { o.lines = append(o.lines, lines...) }
}

// Under runs the server's program by another one, which must keep the process, such as valgrind.
func Under(command ...string) Option {
	return func(o *options) { o.under = command }
}

// Own asks for a server that belongs to the caller alone, to be stopped, flushed or reconfigured: never an external one.
func Own() Option { return func(*options) {} }

func sentinelMode() Option {
	return func(o *options) { o.args = append(o.args, "--sentinel") }
}

// Start starts a server without a test; Close ends it. The error wraps ErrNoServer where there is no program.
func Start(ctx context.Context, opts ...Option) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	var tries []error
	for range startTries { // another process may have taken the port in between
		s, err := startOn(ctx, bin, opts)
		if err == nil {
			return s, nil
		}
		tries = append(tries, err)
		if !errors.Is(err, errEnded) {
			break
		}
	}
	return nil, errors.Join(tries...)
}

func startOn(ctx context.Context, bin Binary, opts []Option) (*Server, error) {
	port, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "luatx-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, port: port, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	if err := s.configure(opts); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) configure(opts []Option) error {
	o := options{lines: []string{
		"bind 127.0.0.1", "protected-mode no", "port " + strconv.Itoa(s.port), "dir " + s.dir, "daemonize no",
	}}
	for _, opt := range opts {
		opt(&o)
	}
	s.under = o.under
	s.args = append([]string{filepath.Join(s.dir, "redis.conf")}, o.args...)
	if len(o.args) == 0 { // a sentinel knows none of these
		users, err := aclLines(s.bin)
		if err != nil {
			return err
		}
		o.lines = slices.Concat(serverLines(s.bin), users, o.lines)
	}
	return os.WriteFile(s.args[0], []byte(strings.Join(o.lines, "\n")+"\n"), 0o600)
}

func serverLines(bin Binary) []string {
	lines := []string{`save ""`, "appendonly no", "databases 16", "repl-diskless-sync yes", "repl-diskless-sync-delay 0", "repl-ping-replica-period 1"}
	if bin.AtLeast(7, 0) { // before, DEBUG is always on and the line unknown
		lines = append(lines, "enable-debug-command yes")
	}
	return lines
}

// errEnded says that a server ended before it answered.
var errEnded = errors.New("the server exited during startup")

func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.external {
		return ErrExternal
	}
	if s.proc != nil && s.proc.IsAlive() {
		return nil
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	command := slices.Concat(s.under, []string{s.bin.Path}, s.args)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.proc, err = child.Start(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.waitReady(ctx)
}

// waitReady waits until this process answers: another one may have won the port.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, PoolSize: 1, DisableIdentity: true, Protocol: 2, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	pid := fmt.Sprintf("process_id:%d\r", s.proc.Pid())
	return poll(ctx, pollEvery, func() error {
		if !s.proc.IsAlive() {
			cancel(errEnded)
			return fmt.Errorf("%w, its log ends with:\n%s", errEnded, s.Log(10))
		}
		if conn, err := net.Dial("tcp", s.addr); err != nil { // go-redis would back off, and log
			return err
		} else if err := conn.Close(); err != nil {
			return err
		}
		info, err := client.Info(ctx, "server").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, pid) {
			return fmt.Errorf("another server is running on %s", s.addr)
		}
		return client.Ping(ctx).Err() // LOADING until the data is read
	})
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.addr }

// Port is the server's port; 0 for an external server.
func (s *Server) Port() int { return s.port }

// Dir is the server's working directory: dump and append-only files.
func (s *Server) Dir() string { return s.dir }

// Binary is the program that runs; zero for an external server.
func (s *Server) Binary() Binary { return s.bin }

// External reports whether the server was started by somebody else.
func (s *Server) External() bool { return s.external }

// Pid is the process id, or 0 when the server does not run or is external.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.IsAlive() {
		return 0
	}
	return s.proc.Pid()
}

// Log returns the last n lines of the server's log.
func (s *Server) Log(n int) string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return apt.LastLines(string(text), n)
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

// Client returns a new client with go-redis' defaults, changed by the functions given; it is closed when the test ends.
func (s *Server) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return Client(t, s.addr, change...)
}

// Stop ends the server as an operator would (SIGTERM), which saves what its configuration says.
func (s *Server) Stop() error {
	return s.with(func(p *child.Process) error { return p.End(syscall.SIGTERM) })
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() error { return s.with((*child.Process).Kill) }

// Pause stops the process (SIGSTOP): connections stay open and silent.
func (s *Server) Pause() error { return s.with(pause) }

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.with(resume) }

// Restart starts a server that was stopped or killed, and stops it before where it still runs. It has the same
// address and directory, and answers when Restart returns.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.startAgain(ctx)
}

// startAgain starts a server that ran before, and waits where another process has taken its port meanwhile.
func (s *Server) startAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, 20*pollEvery, func() error {
		err := s.start(ctx)
		if err != nil && !errors.Is(err, errEnded) {
			cancel()
		}
		return err
	})
}

// Close kills the server and removes its directory; for servers made by Start. An external one is left alone.
func (s *Server) Close() error {
	if s.external {
		return nil
	}
	return errors.Join(s.Kill(), os.RemoveAll(s.dir))
}

// with runs do on the process, where it lives.
func (s *Server) with(do func(*child.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.external:
		return ErrExternal
	case s.proc == nil || !s.proc.IsAlive():
		return nil
	default:
		return do(s.proc)
	}
}
