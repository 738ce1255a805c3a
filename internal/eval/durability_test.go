package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
)

func TestDurabilityIsOnIfAnyCopyIsAskedFor(t *testing.T) {
	t.Parallel()
	for d, want := range map[Durability]bool{{}: false, {Timeout: time.Second}: false, {Replicas: 1}: true, {Fsync: true}: true, {Replicas: 2, Fsync: true}: true} {
		assert.Equal(t, d.On(), want, "%+v waits", d)
	}
}

func TestCallerIsPatientWithTwiceTheTimeOfTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := Durability{Replicas: 1, Timeout: time.Second}
		for left, want := range map[time.Duration]bool{2 * time.Second: true, 2*time.Second - 1: false} {
			assert.Equal(t, d.Patient(t.Context(), time.Now().Add(left)), want, "%v are left until its own deadline: patient", left)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			assert.Equal(t, d.Patient(ctx, time.Time{}), want, "%v are left until the end of its context: patient", left)
			cancel()
		}
		assert.Equal(t, d.Patient(t.Context(), time.Time{}), true, "patient without a deadline")
	})
}

func TestWaitTakesHalfOfTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]int64{0: 3000, time.Hour: 3000, 6 * time.Second: 3000, 5 * time.Second: 2500, time.Millisecond: 1} {
			ctx, cancel := context.WithCancel(t.Context())
			if left > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), left)
			}
			d := Durability{Replicas: 2, Timeout: 3 * time.Second}
			assert.Equal(t, fmt.Sprint(d.wait(ctx).Args()), fmt.Sprint([]any{"wait", 2, want}), "with %v left", left)
			d.Fsync = true
			assert.Equal(t, fmt.Sprint(d.wait(ctx).Args()), fmt.Sprint([]any{"waitaof", 1, 2, want}), "for disks, with %v left", left)
			cancel()
		}
	})
}

func TestReadTimeoutIsThatOfTheClient(t *testing.T) {
	t.Parallel()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0", ReadTimeout: 7 * time.Second})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:0"}, ReadTimeout: 8 * time.Second})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:0"}, ReadTimeout: 9 * time.Second})
	for client, want := range map[redis.UniversalClient]time.Duration{single: 7 * time.Second, cluster: 8 * time.Second, ring: 0} {
		assert.Equal(t, ReadTimeout(client), want, "the timeout of %T", client)
		assert.Must(t, client.Close())
	}
}

// durably runs a script with a wait on a server that answers as a test says. It returns the reports and the log.
func durably(t *testing.T, calls int, script, wait any) (server *scripted.Server, replicated []bool, errs []error, log string) {
	t.Helper()
	server = scripted.New(func(cmd []string) any {
		switch cmd[0] {
		case "evalsha":
			return script
		case "wait":
			return wait
		}
		return scripted.Status("OK")
	})
	var lines bytes.Buffer
	r := New(server.Client(t), "n", slog.New(slog.NewTextHandler(&lines, nil)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range calls {
		_, reached, err := r.EvalDurably(ctx, Durability{Replicas: 2, Timeout: time.Second}, r.Script("commit", "return 1"), []string{"k"}, nil)
		replicated, errs = append(replicated, reached), append(errs, err)
	}
	return server, replicated, errs, lines.String()
}

func TestCallReportsWhatItsWaitReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wait    any
		reached bool
		warned  int
	}{{2, true, 0}, {1, false, 0}, {errors.New("NOPERM no"), false, 1}} {
		synctest.Test(t, func(t *testing.T) {
			server, replicated, errs, log := durably(t, 2, "fine", c.wait)
			assert.Must(t, errs...)
			assert.Equal(t, fmt.Sprint(replicated), fmt.Sprint([]bool{c.reached, c.reached}), "reached after the reply %v", c.wait)
			assert.Equal(t, strings.Count(log, "replication wait refused"), c.warned, "warnings after the reply %v", c.wait)
			assert.Equal(t, len(server.Heard("wait")), 2, "waits")
		})
	}
}

func TestRefusedCallWithAWaitIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, _, errs, _ := durably(t, 1, errors.New("NOPERM no"), 0)
		if !isServerError(errs[0]) || len(server.Heard("evalsha")) != 1 {
			t.Errorf("%v after %d requests", errs[0], len(server.Heard("evalsha")))
		}
	})
}
