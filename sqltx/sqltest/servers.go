package sqltest

import (
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

	"github.com/luatx/luatx/internal/test/apt"
	"go.uber.org/goleak"
)

// Environment variables that say where server programs are.
const (
	EnvPostgres = "LUATX_POSTGRES_BIN" // directory of postgres and initdb
	EnvMariaDB  = "LUATX_MARIADB_BIN"  // directory of mariadbd and mariadb-install-db
)

const (
	startTimeout = time.Minute
	envCI        = "CI" // set: what is missing fails instead of skipping
)

// server is a kind of server, started once a process where it is asked for.
type server struct {
	name  string // as in errors
	pkg   string // to install
	find  func() (programs, bool)
	env   string
	start func(ctx context.Context, p programs) (*running, error)

	once sync.Once
	got  *running
	err  error
}

// programs are the paths of what makes a data directory, and of what serves it.
type programs struct{ initialize, serve string }

type running struct {
	*process
	dir, dsn string
}

var (
	postgres = &server{name: "PostgreSQL", pkg: "postgresql", env: EnvPostgres, find: findPostgres, start: startPostgres}
	mariadb  = &server{name: "MariaDB", pkg: "mariadb-server", env: EnvMariaDB, find: findMariaDB, start: startMariaDB}
)

func findPostgres() (programs, bool) {
	debian, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is right
	slices.Reverse(debian)
	return findBoth(EnvPostgres, "initdb", "postgres", debian)
}

func findMariaDB() (programs, bool) {
	return findBoth(EnvMariaDB, "mariadb-install-db", "mariadbd", []string{"/usr/sbin", "/usr/libexec"})
}

// findBoth looks for two programs, the second of which may lie in a directory that is on nobody's PATH.
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

// programs finds the server's programs, and installs them where that is allowed.
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

// need returns the DSN of the server, which it starts at the first call.
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
	who, err := ownerOf("postgres")
	if err != nil {
		return nil, err
	}
	dir, err := who.directory()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	r := &running{dir: dir, dsn: "host=" + dir + " user=postgres dbname=postgres"}
	if out, err := who.command(dir, p.initialize, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, apt.LastLines(string(out), 5)), os.RemoveAll(dir))
	}
	cmd := who.command(dir, p.serve, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300",
		"-c", "deadlock_timeout=100ms", "-c", "autovacuum_naptime=1s")
	return r, r.serve(ctx, cmd, "pgx", r.dsn)
}

func startMariaDB(ctx context.Context, p programs) (*running, error) {
	who, err := ownerOf("mysql")
	if err != nil {
		return nil, err
	}
	dir, err := who.directory()
	if err != nil {
		return nil, err
	}
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "s")
	r := &running{dir: dir, dsn: "root@unix(" + socket + ")/luatx"}
	if out, err := who.command(dir, p.initialize, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("mariadb-install-db: %w: %s", err, apt.LastLines(string(out), 5)), os.RemoveAll(dir))
	}
	cmd := who.command(dir, p.serve, "--no-defaults", "--datadir="+data, "--socket="+socket, "--skip-networking", "--pid-file="+filepath.Join(dir, "pid"),
		"--tmpdir="+dir, "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M", "--max-connections=300", "--skip-name-resolve")
	if err := r.serve(ctx, cmd, "mysql", strings.TrimSuffix(r.dsn, "luatx")); err != nil {
		return nil, err
	}
	return r, execute(ctx, "mysql", strings.TrimSuffix(r.dsn, "luatx"), "CREATE DATABASE IF NOT EXISTS luatx")
}

// serve starts the server, and waits until it answers.
func (r *running) serve(ctx context.Context, cmd *exec.Cmd, driver, dsn string) (err error) {
	if r.process, err = start(cmd); err != nil {
		return errors.Join(err, os.RemoveAll(r.dir))
	}
	if err := r.until(ctx, func() error { return execute(ctx, driver, dsn, "SELECT 1") }); err != nil {
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
	return errors.Join(r.end(syscall.SIGQUIT), os.RemoveAll(r.dir))
}

// Main runs the tests, ends the servers, and fails where goroutines are left. It does not return.
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

// Found describes in one line what there is to test with, and installs what is missing where that is allowed.
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
