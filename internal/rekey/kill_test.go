package rekey_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/rekey"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
)

// around is a hook that runs in place of every command.
type around func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (f around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd, next) }
}

func (f around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// afterEach returns a hook that calls f after every command.
func afterEach(f func(name string, args []any)) redis.Hook {
	return around(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		f(cmd.Name(), cmd.Args())
		return err
	})
}

// halt returns a hook that prints a line and stops the process at the n-th request of a command. If after is set, it stops the
// process after the reply, and otherwise before the request.
func halt(command string, after bool, nth int64) redis.Hook {
	var left atomic.Int64
	left.Store(nth)
	stop := func() {
		_, _ = os.Stdout.WriteString("stopped\n")
		select {} // until the process is killed
	}
	return around(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		hit := cmd.Name() == command && left.Add(-1) <= 0 // later commands stop as well
		if hit && !after {
			stop()
		}
		err := next(ctx, cmd)
		if hit {
			stop()
		}
		return err
	})
}

const envChild = "LUATX_REKEY_CHILD"

// TestChildProcessRenamesKeys is the process that the tests kill.
func TestChildProcessRenamesKeys(t *testing.T) {
	words := strings.Fields(os.Getenv(envChild))
	if len(words) != 5 {
		t.Skip("runs as a child of other tests only")
	}
	addrs, lead, command, place := strings.Split(words[0], ","), words[1], words[2], words[3]
	var client redis.UniversalClient = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	if len(addrs) == 1 {
		client = redis.NewClient(&redis.Options{Addr: addrs[0]})
	}
	nth, err := strconv.ParseInt(words[4], 10, 64)
	redistest.Must(t, err)
	client.AddHook(halt(command, place == "after", nth))
	m, err := rekey.ParseMap(lead+":{id}:{part}", lead, "{part}")
	redistest.Must(t, err)
	redistest.Must(t, rekey.Run(context.Background(), client, rekey.Config{
		Pattern: lead + ":*", Map: m, Keyspace: luatx.Partitions(16), Apply: true,
	}, func(rekey.Step) {}))
	_, err = os.Stdout.WriteString("came to its end\n")
	redistest.Must(t, err)
}

func TestKilledRunLosesNothingAndTheNextRunFinishes(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		for _, command := range []string{"restore", "evalsha"} {
			testKilled(t, cluster.Client(t), cluster.Addrs(), command)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		testKilled(t, server.Client(t), []string{server.Addr()}, "renamenx")
	})
}

func testKilled(t *testing.T, client redis.UniversalClient, addrs []string, command string) {
	t.Helper()
	for _, place := range []string{"before", "after"} {
		for _, nth := range []int{1, 9} {
			t.Run(fmt.Sprintf("%s %s %d", place, command, nth), func(t *testing.T) {
				t.Parallel()
				d := fill(t, client, 10)
				before := d.dump(t)
				killChild(t, fmt.Sprint(strings.Join(addrs, ","), " ", d.lead, " ", command, " ", place, " ", nth))
				between := d.dump(t)
				for old, name := range d.names {
					_, hasOld := between.Keys[old]
					_, hasNew := between.Keys[name]
					if !hasOld && !hasNew {
						t.Errorf("%s is lost", old)
					}
				}
				counts, _ := d.run(t, d.cfg)
				assert.Equal(t, counts[rekey.Taken]+counts[rekey.Failed]+counts[rekey.Unfit], 0, "commands of the next run: %v", counts)
				d.wantRenamed(t, before)
			})
		}
	}
}

// killChild starts the process, waits until it has stopped at its place, and kills it.
func killChild(t *testing.T, env string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildProcessRenamesKeys$", "-test.v")
	cmd.Env = append(os.Environ(), envChild+"="+env)
	out, err := cmd.StdoutPipe()
	redistest.Must(t, err)
	redistest.Must(t, cmd.Start())
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if lines.Text() == "stopped" {
			break
		}
	}
	redistest.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	if !strings.HasSuffix(said, "stopped\n") {
		t.Fatalf("the child did not stop at its place:\n%s", said)
	}
}
