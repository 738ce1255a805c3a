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

// A counter is a server that runs under callgrind. While it counts, it is about 50 times slower.
type counter struct {
	server *redistest.Server
	client *redis.Client
	dir    string // for callgrind's files
	dumps  int
}

// slow is the client's timeout.
const slow = time.Minute

// newCounter starts a server. If valgrind is missing, it returns a suite.SkipError.
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
	c.server, err = redistest.Start(ctx, redistest.Config("hz 1", "dynamic-hz no"), // periodic work of the server must not count
		redistest.Under("valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file="+c.file(), "--log-file="+filepath.Join(dir, "log")))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.client = redis.NewClient(&redis.Options{Addr: c.server.Addr(), ReadTimeout: slow, WriteTimeout: slow, DialTimeout: slow})
	return c, nil
}

func (c *counter) close() error {
	return errors.Join(c.client.Close(), c.server.Close(), os.RemoveAll(c.dir))
}

// file returns the path to which callgrind writes. A dump adds its number.
func (c *counter) file() string { return filepath.Join(c.dir, "out") }

// count returns the number of instructions that the server executes while do runs.
func (c *counter) count(ctx context.Context, do func() error) (int64, error) {
	if err := errors.Join(c.control(ctx, "-z"), c.control(ctx, "-i", "on"), do()); err != nil {
		return 0, err
	}
	// Callgrind clears its counters when counting is disabled, so the dump comes first.
	if err := errors.Join(c.control(ctx, "-d"), c.control(ctx, "-i", "off")); err != nil {
		return 0, err
	}
	c.dumps++
	return summary(fmt.Sprintf("%s.%d", c.file(), c.dumps))
}

// control sends a command to callgrind.
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
