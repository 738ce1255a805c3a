package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/luatx/luatx/internal/test/apt"
	"github.com/luatx/luatx/internal/test/child"
)

// Environment variables with the locations of server programs.
const (
	envPostgres = "LUATX_POSTGRES_BIN" // directory of postgres and initdb
	envMariaDB  = "LUATX_MARIADB_BIN"  // directory of mariadbd and mariadb-install-db
)

const (
	startTimeout = time.Minute
	envCI        = "CI" // if set, missing programs fail tests instead of skipping them
)

// server is a kind of server, started once per process on demand.
type server struct {
	name  string // for errors
	pkg   string // the package to install
	find  func() (programs, bool)
	env   string
	start func(ctx context.Context, p programs) (*running, error)

	once sync.Once
	got  *running
	err  error
}

// programs are the paths of the programs that create a data directory and serve it.
type programs struct{ initialize, serve string }

type running struct {
	process  *child.Process
	owner    *syscall.Credential
	dir, dsn string
	log      bytes.Buffer // read only after the process has ended
}

// newRunning creates the directory of a server. It belongs to the first of the users that exists.
func newRunning(users ...string) (*running, error) {
	owner, err := child.Owner(append(users, "nobody")...)
	if err != nil {
		return nil, err
	}
	dir, err := child.Directory("luatx-sql-", owner)
	return &running{owner: owner, dir: dir}, err
}

// command prepares a command that runs as the owner, in the directory. Its time zone has daylight saving time.
func (r *running) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "TMPDIR="+r.dir, "LC_ALL=C", "TZ=Europe/Berlin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.owner}
	return cmd
}

// initialize creates the data directory, or removes everything if that fails.
func (r *running) initialize(path string, args ...string) error {
	if out, err := r.command(path, args...).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w: %s", filepath.Base(path), err, apt.LastLines(string(out), 5)), os.RemoveAll(r.dir))
	}
	return nil
}

var (
	postgres = &server{name: "PostgreSQL", pkg: "postgresql", env: envPostgres, find: findPostgres, start: startPostgres}
	mariadb  = &server{name: "MariaDB", pkg: "mariadb-server", env: envMariaDB, find: findMariaDB, start: startMariaDB}
)

func findPostgres() (programs, bool) {
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	slices.Reverse(debian)
	return findBoth(envPostgres, "initdb", "postgres", debian)
}

func findMariaDB() (programs, bool) {
	return findBoth(envMariaDB, "mariadb-install-db", "mariadbd", []string{"/usr/sbin", "/usr/libexec"})
}

// findBoth finds two programs. The second one may be in a directory that is not on PATH.
func findBoth(env, initialize, serve string, dirs []string) (programs, bool) {
	if dir := os.Getenv(env); dir != "" {
		p := programs{filepath.Join(dir, initialize), filepath.Join(dir, serve)}
		return p, isFile(p.initialize) && isFile(p.serve)
	}
	find := func(name string) string {
		for _, dir := range dirs {
			if path := filepath.Join(dir, name); isFile(path) {
				return path
			}
		}
		path, _ := exec.LookPath(name)
		return path
	}
	p := programs{find(initialize), find(serve)}
	return p, p.initialize != "" && p.serve != ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// programs finds the server's programs, and installs them if that is allowed.
func (s *server) programs() (programs, error) {
	if p, ok := s.find(); ok {
		return p, nil
	}
	there := func() bool { _, ok := s.find(); return ok }
	howTo := fmt.Sprintf("no %s found: install %s, name its directory in %s, or set SETUP=1 to install it", s.name, s.pkg, s.env)
	if err := apt.Install(s.pkg, there); err != nil {
		return programs{}, fmt.Errorf("%s (%w)", howTo, err)
	}
	p, ok := s.find()
	if !ok {
		return p, errors.New(howTo)
	}
	return p, nil
}

// need returns the DSN of the server, which it starts on the first call.
func need(t testing.TB, s *server) string {
	t.Helper()
	p, err := s.programs()
	if err != nil {
		if os.Getenv(envCI) != "" || os.Getenv(s.env) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s.got, s.err = s.start(ctx, p)
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.got.dsn
}

func startPostgres(ctx context.Context, p programs) (*running, error) {
	r, err := newRunning("postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(r.dir, "data")
	r.dsn = "host=" + r.dir + " user=postgres dbname=postgres"
	if err := r.initialize(p.initialize, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return nil, err
	}
	return r, r.serve(ctx, "pgx", r.dsn, p.serve, "-D", data, "-k", r.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300",
		"-c", "deadlock_timeout=100ms", "-c", "autovacuum_naptime=1s")
}

func startMariaDB(ctx context.Context, p programs) (*running, error) {
	r, err := newRunning("mysql")
	if err != nil {
		return nil, err
	}
	data, socket := filepath.Join(r.dir, "data"), filepath.Join(r.dir, "s")
	admin := "root@unix(" + socket + ")/"
	r.dsn = admin + "luatx"
	if err := r.initialize(p.initialize, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return nil, err
	}
	if err := r.serve(ctx, "mysql", admin, p.serve, "--no-defaults", "--datadir="+data, "--socket="+socket, "--skip-networking",
		"--pid-file="+filepath.Join(r.dir, "pid"), "--tmpdir="+r.dir, "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M",
		"--max-connections=300", "--skip-name-resolve"); err != nil {
		return nil, err
	}
	return r, execute(ctx, "mysql", admin, "CREATE DATABASE IF NOT EXISTS luatx")
}

// serve starts the server and waits until it responds.
func (r *running) serve(ctx context.Context, driver, dsn, path string, args ...string) (err error) {
	cmd := r.command(path, args...)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if r.process, err = child.Start(cmd); err != nil {
		return errors.Join(err, os.RemoveAll(r.dir))
	}
	output := func() string { return apt.LastLines(r.log.String(), 10) }
	if err := r.process.Await(ctx, output, func() error { return execute(ctx, driver, dsn, "SELECT 1") }); err != nil {
		return errors.Join(err, r.close())
	}
	return nil
}

func execute(ctx context.Context, driver, dsn, statement string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

func (r *running) close() error {
	return errors.Join(r.process.End(syscall.SIGQUIT), os.RemoveAll(r.dir))
}

// Main runs the tests, stops the servers, and fails if goroutines leaked. It does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	for _, s := range []*server{postgres, mariadb} {
		if s.got == nil || s.got.process == nil {
			continue
		}
		if err := s.got.close(); err != nil {
			fmt.Fprintln(os.Stderr, "sqltest:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			fmt.Fprintln(os.Stderr, "sqltest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Found returns a line about the available databases. It installs missing servers if that is allowed.
func Found() string {
	var parts []string
	for _, s := range []*server{postgres, mariadb} {
		p, err := s.programs()
		if err != nil {
			parts = append(parts, err.Error())
			continue
		}
		version, err := exec.CommandContext(context.Background(), p.serve, "--version").Output()
		if err != nil {
			parts = append(parts, fmt.Sprintf("%s at %s: %v", s.name, p.serve, err))
			continue
		}
		parts = append(parts, strings.TrimSpace(string(version)))
	}
	return strings.Join(append(parts, "SQLite"), "; ")
}
