package instructions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/redistest"
)

// A counter is a server that runs under callgrind, about 50 times slower than without it while it counts.
type counter struct {
	server *redistest.Server
	client *redis.Client
	dir    string // for callgrind's files
	dumps  int
	idle   float64 // instructions of a second without work
}

// idleFor is how long the server is counted without work.
const idleFor = 4 * time.Second

// slow is the client's timeout.
const slow = time.Minute

// newCounter starts a server. If valgrind is missing, the error is a suite.SkipError.
func newCounter(ctx context.Context) (*counter, error) {
	for _, program := range []string{"valgrind", "callgrind_control"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, suite.SkipError(program + " is missing: install valgrind to count instructions")
		}
	}
	dir, err := os.MkdirTemp("", "luatx-callgrind-")
	if err != nil {
		return nil, err
	}
	c := &counter{dir: dir}
	c.server, err = redistest.Start(ctx, redistest.Config("hz 1", "dynamic-hz no"), // what the server does by the clock is not to count
		redistest.Under("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file="+c.file(), "--log-file="+filepath.Join(dir, "log")))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.client = redis.NewClient(&redis.Options{Addr: c.server.Addr(), ReadTimeout: slow, WriteTimeout: slow, DialTimeout: slow})
	idle, err := c.count(ctx, func() error {
		<-time.After(idleFor)
		return c.client.Ping(ctx).Err()
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.idle = float64(idle) / idleFor.Seconds()
	return c, nil
}

func (c *counter) close() error {
	return errors.Join(c.client.Close(), c.server.Close(), os.RemoveAll(c.dir))
}

// file is what callgrind writes to. A dump adds its number.
func (c *counter) file() string { return filepath.Join(c.dir, "out") }

// count returns how many instructions the server runs while do runs, without those that it runs by the clock. On a busy machine,
// they would be a tenth of all.
func (c *counter) count(ctx context.Context, do func() error) (int64, error) {
	if err := errors.Join(c.control(ctx, "-z"), c.control(ctx, "-i", "on")); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	byClock := int64(c.idle * time.Since(began).Seconds())
	// Callgrind clears its counters when counting is switched off, so the dump comes first.
	if err := errors.Join(c.control(ctx, "-d"), c.control(ctx, "-i", "off")); err != nil {
		return 0, err
	}
	c.dumps++
	all, err := summary(fmt.Sprintf("%s.%d", c.file(), c.dumps))
	return all - byClock, err
}

// control passes a command to callgrind.
func (c *counter) control(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "callgrind_control", append(args, strconv.Itoa(c.server.Pid()))...).CombinedOutput() //nolint:gosec // our own words
	if err != nil {
		return fmt.Errorf("callgrind_control %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// summary reads the number of instructions from a dump.
func summary(path string) (int64, error) {
	file, err := os.Open(path) //nolint:gosec // in a directory of our own
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if number, ok := strings.CutPrefix(lines.Text(), "summary: "); ok {
			return strconv.ParseInt(strings.Fields(number)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no summary: %w", path, lines.Err())
}
