package stream

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/sleep"
)

// fakeServer replaces the network, so that minutes pass in no time. It has one new entry to read whenever the test adds
// one. It returns err for every command if that is set.
type fakeServer struct {
	mu       sync.Mutex
	err      error
	entries  []string
	attempts int
}

func (f *fakeServer) set(err error, entries ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.entries = err, entries
}

func (f *fakeServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fakeServer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err != nil {
			f.attempts++
		}
		for _, cmd := range cmds {
			cmd.SetErr(f.err)
		}
		return f.err
	}
}

func (f *fakeServer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.err != nil {
			f.attempts++
			cmd.SetErr(f.err)
			return f.err
		}
		switch cmd := cmd.(type) {
		case group.Read:
			if len(f.entries) > 0 {
				cmd.SetVal([]redis.XStream{{Messages: []redis.XMessage{{ID: f.entries[0], Values: map[string]any{"data": f.entries[0]}}}}})
				f.entries = f.entries[1:]
				return nil
			}
			f.mu.Unlock()
			sleep.For(ctx, time.Second)
			f.mu.Lock()
			cmd.SetErr(redis.Nil)
			return redis.Nil
		case *redis.Cmd: // scripts
			cmd.SetVal(int64(0))
		}
		return nil
	}
}

func TestSubscriptionSurvivesMinutesOfEachOutage(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no network":   errors.New("dial tcp: connection refused"),
		"LOADING":      replyError("LOADING Redis is loading the dataset in memory"),
		"CLUSTERDOWN":  replyError("CLUSTERDOWN The cluster is down"),
		"MASTERDOWN":   replyError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
		"READONLY":     replyError("READONLY You can't write against a read only replica."),
		"NOREPLICAS":   replyError("NOREPLICAS Not enough good replicas to write."),
		"max clients":  replyError("ERR max number of clients reached"),
		"OOM":          replyError("OOM command not allowed when used memory > 'maxmemory'."),
		"script BUSY":  replyError("BUSY Redis is busy running a script."),
		"MISCONF":      replyError("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
		"NOAUTH":       replyError("NOAUTH Authentication required."),
		"who knows":    replyError("ERR something else"),
		"pool timeout": redis.ErrPoolTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &fakeServer{}
				client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
				defer client.Close()
				client.AddHook(server)
				var log strings.Builder
				sub, newErr := NewSubscriber(client, SubscriberConfig{Stream: "s", Group: "g", Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if newErr != nil {
					t.Fatal(newErr)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ch, newErr := sub.Subscribe(ctx)
				if newErr != nil {
					t.Fatal(newErr)
				}
				server.set(nil, "1-1")
				(<-ch).Ack()
				time.Sleep(time.Minute)

				server.set(err)
				time.Sleep(10 * time.Minute)
				server.set(nil, "2-1")
				healed := time.Now()
				msg := <-ch
				if took := time.Since(healed); took > 5*time.Second {
					t.Errorf("reads %v after the server is well", took)
				}
				if string(msg.Data) != "2-1" {
					t.Errorf("got %q", msg.Data)
				}
				msg.Ack()
				time.Sleep(time.Minute)
				cancel()
				for range ch {
					t.Error("a message from nowhere")
				}
				if server.attempts < 100 || server.attempts > 3000 {
					t.Errorf("%d attempts in ten minutes", server.attempts)
				}
				// Once for reading, and once for each operation with an error of its own.
				if n := strings.Count(log.String(), "subscriber failed"); n < 1 || n > 4 {
					t.Errorf("the outage was logged %d times:\n%s", n, log.String())
				}
				if n := strings.Count(log.String(), "subscriber recovered"); n < 1 {
					t.Errorf("its end was not logged:\n%s", log.String())
				}
			})
		})
	}
}
