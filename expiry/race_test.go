package expiry_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/test/redistest"
)

// The environment variables of the process that lets timers fire.
const (
	envRaceAddr      = "LUATX_EXPIRY_RACE_ADDR"
	envRaceNamespace = "LUATX_EXPIRY_RACE_NAMESPACE"
)

const (
	raced   = 1000
	racers  = 4
	headway = 50 // subjects that each side processes before the other may reach them
)

func racedSubject(i int) string { return fmt.Sprint("ticket-", i) }

// race starts goroutines that process the subjects from one end or the other. It notifies the other side when it has begun, and
// waits for the other side before it goes beyond its headway.
func race(t *testing.T, client redis.UniversalClient, namespace, me, other string, backwards bool, act func(subject string)) {
	t.Helper()
	ctx := redistest.Soon(t)
	var next atomic.Int64
	var workers sync.WaitGroup
	met := sync.OnceFunc(func() {
		if err := client.RPush(ctx, namespace+":race:"+me, 1).Err(); err != nil {
			t.Error(err)
		}
		if err := client.BLPop(ctx, 20*time.Second, namespace+":race:"+other).Err(); err != nil {
			t.Errorf("%s waits for %s: %v", me, other, err)
		}
	})
	for range racers {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < raced; i = int(next.Add(1)) - 1 {
				if i >= headway {
					met()
				}
				if backwards {
					i = raced - 1 - i
				}
				act(racedSubject(i))
			}
		})
	}
	workers.Wait()
}

// TestChildProcessExpiresSubjects is the other process of TestRevokeOrExpiryWinsForEachSubjectNeverBoth.
func TestChildProcessExpiresSubjects(t *testing.T) {
	t.Parallel()
	addr, namespace := os.Getenv(envRaceAddr), os.Getenv(envRaceNamespace)
	if addr == "" {
		t.Skip("runs as a child of TestRevokeOrExpiryWinsForEachSubjectNeverBoth only")
	}
	client := redistest.Client(t, addr)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Namespace, c.Keyspace = namespace, luatx.Partitions(4) })
	race(t, client, namespace, "child", "parent", true, func(subject string) {
		timer := expiry.Timer{Subject: subject, Due: past}
		if _, err := f.Decide(redistest.Soon(t), timer, expired(subject), time.Time{}); err != nil {
			t.Error(err)
		}
	})
}

// TestRevokeOrExpiryWinsForEachSubjectNeverBoth lets goroutines of one process revoke the timers, while those of another
// process and a worker let them expire. Each side must win some of a thousand.
func TestRevokeOrExpiryWinsForEachSubjectNeverBoth(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	f := newFixture(t, client, expiry.Config{}, func(c *luatx.Config) { c.Keyspace = luatx.Partitions(4) })
	for i := range raced {
		f.record(racedSubject(i), past)
	}
	namespace := f.tr.Config().Namespace
	child := exec.CommandContext(redistest.Soon(t), os.Args[0], "-test.run=^TestChildProcessExpiresSubjects$", "-test.v")
	child.Env = append(os.Environ(), envRaceAddr+"="+server.Addr(), envRaceNamespace+"="+namespace)
	ended := make(chan error, 1)
	go func() {
		out, err := child.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		ended <- err
	}()

	var won sync.Map
	var worker sync.Once
	race(t, client, namespace, "parent", "child", false, func(subject string) {
		ok, err := f.Revoke(redistest.Soon(t), subject, revoked(subject))
		if err != nil {
			t.Error(err)
		}
		won.Store(subject, ok)
		if subject == racedSubject(raced/4) {
			worker.Do(func() { f.working(expiry.WorkerConfig{BatchSize: 7}) })
		}
	})
	redistest.Must(t, <-ended)
	redistest.Eventually(t, "nothing to be due", func() bool { return len(f.due(raced)) == 0 })

	types := make(map[string]int)
	events := f.events()
	for i := range raced {
		subject := racedSubject(i)
		got := events[subject]
		if len(got) != 1 {
			t.Fatalf("%s has the events %q", subject, got)
		}
		if ok, _ := won.Load(subject); ok != (got[0] == "revoked") {
			t.Errorf("%s was revoked: %v, and has the event %s", subject, ok, got[0])
		}
		types[got[0]]++
	}
	if types["expired"] < headway || types["revoked"] < headway {
		t.Errorf("no race: %v", types)
	}
	t.Logf("%v", types)
}

// TestRevokeOrDecideWinsForEachSubjectNeverBoth uses a cluster and miniredis, with two goroutines per subject.
func TestRevokeOrDecideWinsForEachSubjectNeverBoth(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client, expiry.Config{})
		for i := range 100 {
			subject := racedSubject(i)
			f.record(subject, past)
			var both sync.WaitGroup
			both.Go(func() {
				_, err := f.Revoke(redistest.Soon(t), subject, revoked(subject))
				if err != nil {
					t.Error(err)
				}
			})
			both.Go(func() {
				_, err := f.Decide(redistest.Soon(t), expiry.Timer{Subject: subject, Due: past}, expired(subject), time.Time{})
				if err != nil {
					t.Error(err)
				}
			})
			both.Wait()
		}
		events := f.events()
		for i := range 100 {
			if got := events[racedSubject(i)]; len(got) != 1 {
				t.Errorf("%s has the events %q", racedSubject(i), got)
			}
		}
	})
}
