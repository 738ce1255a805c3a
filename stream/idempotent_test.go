package stream_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// bySource is a PublisherConfig.Producer.
func bySource(msg *message.RawMessage) string { return msg.Source() }

func idempotent(c *stream.PublisherConfig) { c.Producer = bySource }

func (f *fixture) window(t *testing.T) (duration, ids int64) {
	t.Helper()
	info, err := f.client.XInfoStream(t.Context(), f.key).Result()
	redistest.Must(t, err)
	return info.IDMPDuration, info.IDMPMaxSize
}

const denied = "stream: idempotency window denied"

// since86 returns a fixture on a server that recognizes entries, or skips the test.
func since86(t *testing.T) *fixture {
	t.Helper()
	redistest.NeedCommandsOf(t, 8, 6)
	return shared(t)
}

func TestMessageSentAgainIsOneEntryWithinTheWindow(t *testing.T) {
	t.Parallel()
	f := since86(t)
	send(t, f.publisher(t, idempotent), order("1"), order("2"))
	send(t, f.publisher(t, idempotent), order("2"), order("3")) // like another process
	if got := f.written(t, f.key); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("the stream has %q", got)
	}
	if duration, ids := f.window(t); duration != 300 || ids != 10_000 {
		t.Errorf("the window is %d s and %d ids", duration, ids)
	}
	send(t, f.publisher(t, idempotent, func(c *stream.PublisherConfig) {
		c.Producer = func(*message.RawMessage) string { return "another" }
	}), order("1"))
	if got := f.written(t, f.key); len(got) != 4 {
		t.Errorf("the stream has %q, want the same id of another producer", got)
	}
}

func TestMessageSentAgainAfterALostReplyIsOneEntry(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	f := newFixture(t, redistest.Client(t, proxy.Addr()))
	pub := f.publisher(t, idempotent)
	send(t, pub, order("0"))
	proxy.DropReply(1, respproxy.Command("XADD"))
	send(t, pub, order("1"), order("2"))
	if got := f.written(t, f.key); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("the stream has %q", got)
	}
}

// The streams are on several nodes, and each of them has to load the script.
func TestMessagesToManyStreamsOfAClusterSentAgainAreOneEntryEach(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	f := newFixture(t, redistest.SharedCluster(t).Client(t))
	var keys []string
	var msgs []*message.RawMessage
	for range 12 {
		key := redistest.Tag(t)
		keys, msgs = append(keys, key), append(msgs, order(key))
	}
	for range 2 {
		send(t, f.publisher(t, idempotent, func(c *stream.PublisherConfig) {
			c.Stream, c.StreamFor = "", func(msg *message.RawMessage) (string, error) { return msg.ID(), nil }
		}), msgs...)
	}
	for _, key := range keys {
		if got := f.written(t, key); !slices.Equal(got, []string{key}) {
			t.Errorf("%s has %q", key, got)
		}
	}
}

func TestMessageIsAddedEachTimeWithoutProducerOrWindow(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, change := range map[string]func(*stream.PublisherConfig){
		"no producer":       func(*stream.PublisherConfig) {},
		"an empty producer": func(c *stream.PublisherConfig) { c.Producer = func(*message.RawMessage) string { return "" } },
		"no window":         func(c *stream.PublisherConfig) { c.Producer, c.IdempotencyWindow = bySource, -1 },
	} {
		before := len(f.written(t, f.key))
		pub := f.publisher(t, change)
		send(t, pub, order("1"))
		send(t, pub, order("1"))
		if got := f.written(t, f.key); len(got) != before+2 {
			t.Errorf("%s: the stream has %q", name, got)
		}
	}
}

func TestWindowIsOnlyWidened(t *testing.T) {
	t.Parallel()
	f := since86(t)
	window := func(d time.Duration) *stream.Publisher {
		return f.publisher(t, idempotent, func(c *stream.PublisherConfig) { c.IdempotencyWindow = d })
	}
	for _, step := range []struct {
		window time.Duration
		want   int64
	}{{time.Second, 100}, {200*time.Second + 1, 201}, {2 * time.Second, 201}} {
		send(t, window(step.window), order(fmt.Sprint(step.want)))
		if duration, ids := f.window(t); duration != step.want || ids != 10_000 {
			t.Errorf("after %v the window is %d s and %d ids, want %d s", step.window, duration, ids, step.want)
		}
	}
	if got := f.written(t, f.key); !slices.Equal(got, []string{"100", "201"}) { // the third one repeats the second
		t.Errorf("the stream has %q", got)
	}
}

func TestDeletedEntryIsNotAddedAgain(t *testing.T) {
	t.Parallel()
	f := since86(t)
	pub := f.publisher(t, idempotent)
	send(t, pub, order("1"))
	sub := f.subscribe(t, func() stream.SubscriberConfig {
		cfg := f.config()
		cfg.DeleteAcked = true
		return cfg
	}())
	sub.next(t).Ack()
	send(t, pub, order("1"))
	if got := f.written(t, f.key); len(got) != 0 {
		t.Errorf("the stream has %q", got)
	}
}

func TestWindowSurvivesAFailover(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	master, replica := redistest.WithReplica(t)
	f := newFixture(t, master.Client(t))
	send(t, f.publisher(t, idempotent), order("1"))
	redistest.Must(t, master.Admin(t).Wait(t.Context(), 1, time.Minute).Err(), replica.Admin(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
	f.client = replica.Client(t)
	send(t, f.publisher(t, idempotent), order("1"))
	if got := f.written(t, f.key); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the stream has %q", got)
	}
	if duration, _ := f.window(t); duration != 300 {
		t.Errorf("the window is %d s", duration)
	}
}

func TestWindowIsCheckedOnceAMinute(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	f := newFixture(t, redistest.Client(t, proxy.Addr()))
	pub := f.publisher(t, idempotent)
	send(t, pub, order("0")) // loads the script
	before := proxy.Count("EVALSHA")
	f.key += ":more"
	pub = f.publisher(t, idempotent)
	send(t, pub, order("1"), order("2"))
	send(t, pub, order("3"))
	if n := proxy.Count("EVALSHA") - before; n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestServerWithoutIDMPGetsPlainEntries(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		t.Helper()
		if !strings.HasSuffix(t.Name(), "miniredis") && knows(t, client, "XCFGSET") {
			t.Skip("the server has IDMP")
		}
		f := newFixture(t, client)
		pub := f.publisher(t, idempotent, func(c *stream.PublisherConfig) { c.MaxLen = 100 })
		send(t, pub, order("1"), order("2"))
		send(t, pub, order("3"))
		if got := f.written(t, f.key); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("the stream has %q", got)
		}
		if f.logs.count(denied) > 0 {
			t.Errorf("logged: %v", f.logs)
		}
	})
}

// replyError is an error that a server returns.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// replies returns replies to EVALSHA instead of the server.
type replies struct{ window func(*redis.Cmd) }

func (r replies) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}
func (r replies) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r replies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 0 && cmds[0].Name() == "evalsha" {
			for _, cmd := range cmds {
				r.window(cmd.(*redis.Cmd)) //nolint:forcetypeassert // what the Publisher sends
			}
			return nil
		}
		return next(ctx, cmds)
	}
}

// The script has run on another server than the XADD.
func TestServerReplacedByOneWithoutIDMPGetsPlainEntries(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	if knows(t, client, "XCFGSET") {
		t.Skip("the server has IDMP")
	}
	asked := 0
	client.AddHook(replies{func(cmd *redis.Cmd) {
		asked++
		cmd.SetVal([]any{"once"})
	}})
	for _, most := range []int64{0, 100} {
		f := newFixture(t, client)
		pub := f.publisher(t, idempotent, func(c *stream.PublisherConfig) { c.MaxLen = most })
		send(t, pub, order("1"), order("2"))
		send(t, pub, order("3"))
		if got := f.written(t, f.key); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("the stream has %q", got)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

func TestFailedCheckOfTheWindowStopsWritesUnlessItIsDenied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply   error
		written bool
		logged  int
	}{
		"no right":         {replyError("NOPERM User relay has no permissions to run the 'evalsha' command"), true, 1},
		"unknown":          {replyError("ERR unknown command 'evalsha'"), true, 1},
		"cannot be loaded": {replyError("NOSCRIPT No matching script"), true, 1},
		"no memory":        {replyError("OOM command not allowed when used memory > 'maxmemory'"), false, 0},
		"no reply":         {context.DeadlineExceeded, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			client.AddHook(replies{func(cmd *redis.Cmd) { cmd.SetErr(c.reply) }})
			f := newFixture(t, client)
			pub := f.publisher(t, idempotent)
			for _, id := range []string{"1", "2"} {
				errs := pub.Send(t.Context(), order(id))
				if (errs == nil) != c.written || !c.written && message.IsPermanent(errs[0]) {
					t.Errorf("errors: %v", errs)
				}
			}
			if got := len(f.written(t, f.key)); (got == 2) != c.written {
				t.Errorf("%d entries", got)
			}
			if n := f.logs.count(denied); n != c.logged {
				t.Errorf("logged %d times", n)
			}
		})
	}
}

func TestUserWithoutRightsToTheWindowWritesPlainEntries(t *testing.T) {
	t.Parallel()
	redistest.NeedCommandsOf(t, 8, 6)
	server := redistest.Single(t, redistest.Own())
	for name, c := range map[string]struct {
		rights string
		set    bool // the administrator has set the window
		once   bool
	}{
		"all":                     {"+xinfo +xcfgset", false, true},
		"looks at a window":       {"+xinfo", true, true},
		"may not set the window":  {"+xinfo", false, false},
		"may not look at windows": {"+xcfgset", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, user := redistest.Tag(t), redistest.Tag(t)
			args := []any{"ACL", "SETUSER", user, "on", ">secret", "~*", "+xadd", "+evalsha", "+script|load", "+xrange"}
			for right := range strings.FieldsSeq(c.rights) {
				args = append(args, right)
			}
			redistest.Must(t, server.Admin(t).Do(t.Context(), args...).Err())
			if c.set {
				redistest.Must(t, server.Admin(t).XGroupCreateMkStream(t.Context(), key, "g", "0").Err(),
					server.Admin(t).Do(t.Context(), "XCFGSET", key, "IDMP-DURATION", "300", "IDMP-MAXSIZE", "10000").Err())
			}
			f := newFixture(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = user, "secret" }))
			f.key = key
			pub := f.publisher(t, idempotent)
			send(t, pub, order("1"))
			send(t, pub, order("1"))
			if got := f.written(t, f.key); (len(got) == 1) != c.once {
				t.Errorf("the stream has %q, want one entry: %t", got, c.once)
			}
			if logged := f.logs.count(denied) > 0; logged == c.once {
				t.Errorf("logged: %v", f.logs)
			}
		})
	}
}

func TestWindowScriptLeavesAnotherTypeAlone(t *testing.T) {
	t.Parallel()
	f := since86(t)
	redistest.Must(t, f.client.Set(t.Context(), f.key, "v", 0).Err())
	script := redis.NewScript(lua.Script("window", nil))
	reply, err := script.Eval(t.Context(), f.client, []string{f.key}, 300, 10_000).StringSlice()
	if err != nil || !slices.Equal(reply, []string{"plain"}) {
		t.Errorf("%q, %v", reply, err)
	}
	if errs := f.publisher(t, idempotent).Send(t.Context(), order("1")); errs == nil || !redis.HasErrorPrefix(errs[0], "WRONGTYPE") {
		t.Errorf("errors: %v", errs)
	}
}
