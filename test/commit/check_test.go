package commit_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/internal/test/scripted"
)

// TestCheckWarnsOfEvictionAndSurvivesDenial runs before the first commit: eviction loses ids, and a managed service may deny
// the query.
func TestCheckWarnsOfEvictionAndSurvivesDenial(t *testing.T) {
	t.Parallel()
	denied, admin := rig.NewUser(t, "+@all", "-info")
	ctx := redistest.Soon(t)
	redistest.Must(t, admin.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	for name, c := range map[string]struct {
		client *redis.Client
		strict bool
		err    string
		log    []string // the warnings
	}{
		"warns":     {admin, false, "", []string{"evict keys"}},
		"is strict": {admin, true, "allkeys-lru", nil},
		"is denied": {denied, true, "", []string{"command=INFO"}},
	} {
		log := &rig.Lines{}
		tr, err := luatx.New(c.client, luatx.Config{
			Namespace: redistest.Namespace(t), StrictEviction: c.strict, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		redistest.Must(t, err)
		commit := func() error {
			return assert.ErrOf(tr.Transact(ctx, "a", func(*luatx.Tx) error { return nil }, luatx.WithID("1")))
		}
		for range 2 {
			if err := commit(); c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		assert.Equal(t, strings.Count(log.String(), "level=WARN"), len(c.log), "%s: warnings in %s", name, log)
		for _, text := range c.log {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: the log does not say %q: %s", name, text, log)
			}
		}
	}
}

// informing returns a server that passes the check if the reply to INFO does.
func informing(info string) *scripted.Server {
	return scripted.New(func(cmd []string) any {
		switch cmd[0] {
		case "time":
			return []any{"1800000000", "0"}
		case "info":
			return info
		case "evalsha":
			return []any{"2"}
		}
		return scripted.Status("OK")
	})
}

func TestCheckNeedsRedis6(t *testing.T) {
	t.Parallel()
	for version, says := range map[string]string{"5.0.14": "the server is Redis 5.0.14: 6.0 or later is needed", "6.0.0": "", "255.255.255": "", "": ""} {
		server := informing("# Server\r\nredis_version:" + version + "\r\nmaxmemory_policy:noeviction\r\n")
		err := rig.NewUnchecked(t, server.Client(t)).Check(redistest.Soon(t))
		if says == "" {
			assert.NoError(t, err, "version %q", version)
		} else {
			assert.ErrorContains(t, err, says, "version %q", version)
		}
	}
}

func TestWakeUpsAreShardedUnlessTheServerIsKnownToBeOlderThanRedis7(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"6.2.14": "publish", "7.0.0": "spublish", "8.0.0": "spublish", "": "spublish"} {
		synctest.Test(t, func(t *testing.T) {
			server := informing("redis_version:" + version + "\r\nmaxmemory_policy:noeviction\r\n")
			link.Of(rig.NewTransactor(t, server.Client(t))).Runner.Wake(7)
			synctest.Wait()
			assert.Equal(t, len(server.Heard(want)), 1, "version %q: %s", version, want)
		})
	}
}

func TestCheckWarnsIfTheServerReportsNoPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"noeviction": 0, "": 1} {
		log := &rig.Lines{}
		tr := rig.NewUnchecked(t, informing("redis_version:7.0.0\r\nmaxmemory_policy:"+policy+"\r\n").Client(t), func(c *luatx.Config) {
			c.StrictEviction, c.Logger = true, log.Logger()
		})
		assert.NoError(t, tr.Check(redistest.Soon(t)), "policy %q", policy)
		assert.Equal(t, log.Count("does not report its maxmemory-policy"), want, "warnings of policy %q", policy)
	}
}

func TestCheckEndsAfterCommitTimeoutIfTheServerIsDownOrDoesNotReply(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	proxy.Next(math.MaxInt, respproxy.Command("EVALSHA"), respproxy.CutRequest())
	down := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = down.Close() })
	for _, client := range []*redis.Client{down, redistest.Client(t, proxy.Addr())} {
		tr, err := luatx.New(client, luatx.Config{Namespace: redistest.Namespace(t), CommitTimeout: 200 * time.Millisecond})
		redistest.Must(t, err)
		ctx := redistest.Soon(t)
		if err := tr.Check(ctx); err == nil || ctx.Err() != nil || client == down && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v; its caller waits: %v", err, ctx.Err())
		}
	}
}

// busy records commands of which a rejected commit must leave no trace. It returns the errors of the commit and of a
// command.
func busy(t testing.TB, tr *luatx.Transactor, k string) (err, command error) {
	t.Helper()
	ctx := redistest.Soon(t)
	var last *redis.StatusCmd
	_, err = tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
		tx.Pipeline().Del(ctx, k)
		tx.Pipeline().HSet(ctx, k+":h", "f", "v")
		if err := tx.Emit(luatx.Event{Body: []byte("{}")}); err != nil {
			return err
		}
		last = tx.Pipeline().Set(ctx, k+":s", "v", 0)
		return nil
	}, luatx.WithID("1"))
	return err, last.Err()
}

// refusedWith checks that a commit is rejected with the code and a remedy, and that its commands return the same error.
func refusedWith(t testing.TB, tr *luatx.Transactor, k, code string) {
	t.Helper()
	err, command := busy(t, tr, k)
	for try := 0; try < 10 && errors.Is(err, luatx.ErrOutcomeUnknown); try++ { // the deadline passed between request and reply
		err, command = busy(t, tr, k)
	}
	var refused *luatx.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, &luatx.RefusedError{Code: code}) || !errors.Is(err, &luatx.RefusedError{}) {
		t.Errorf("error %v, want code %s", err, code)
		return
	}
	if refused.Remedy == "" || !strings.Contains(err.Error(), refused.Remedy) || errors.Is(err, &luatx.RefusedError{Code: "ANOTHER"}) {
		t.Errorf("no remedy: %#v", refused)
	}
	assert.Is(t, command, &luatx.RefusedError{Code: code}, "the recorded command")
}

func TestRejectedCommitLeavesNoTraceAndNamesTheRemedy(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	set := func(name, value string) func(testing.TB, *redistest.Server, *redis.Client) {
		return func(t testing.TB, _ *redistest.Server, admin *redis.Client) {
			t.Helper()
			redistest.Must(t, admin.ConfigSet(t.Context(), name, value).Err())
		}
	}
	for code, c := range map[string]struct {
		config  []string
		sicken  func(testing.TB, *redistest.Server, *redis.Client)
		timeout time.Duration
	}{
		"OOM":        {nil, set("maxmemory", "1"), 0},
		"NOREPLICAS": {nil, set("min-replicas-to-write", "1"), 0},
		"MISCONF":    {[]string{"dir " + gone, "save 3600 1000"}, loseDisk(gone), 0},
		"READONLY":   {nil, demote, 500 * time.Millisecond},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			if len(c.config) > 0 {
				redistest.Must(t, os.Mkdir(gone, 0o700))
			}
			server := redistest.Single(t, redistest.Own(), redistest.Config(c.config...))
			if code == "NOREPLICAS" && !server.Binary().AtLeast(7, 0) {
				t.Skip("before Redis 7 min-replicas-to-write does not hold for scripts")
			}
			client := server.Client(t)
			timeout := func(cfg *luatx.Config) { cfg.CommitTimeout = c.timeout }
			tr := rig.NewTransactor(t, client, timeout)
			k := rig.Key(t, tr, "a", "k")
			rig.Run(t, client, k, "RPUSH K a b")
			before := rig.Dump(t, client, tr)
			c.sicken(t, server, server.Admin(t))

			refusedWith(t, tr, k, code)
			fresh, err := luatx.New(client, tr.Config())
			redistest.Must(t, err)
			refusedWith(t, fresh, k, code)
			if code == "READONLY" {
				if err, _ := busy(t, tr, k); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after waiting for a master: %v", err)
				}
			}
			rig.NoTrace(t, client, tr, before)
		})
	}
}

// asBefore7 makes a script believe that the server cannot report the rights of a user.
const asBefore7 = `local redis = {call = redis.call, pcall = redis.pcall, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM}
`

func TestProbeDistinguishesFailingServersFromMissingRights(t *testing.T) {
	t.Parallel()
	script := asBefore7 + lua.Script("probe", nil)
	without := func(command string) func(testing.TB, *redistest.Server, *redis.Client) {
		return func(t testing.TB, _ *redistest.Server, admin *redis.Client) {
			t.Helper()
			redistest.Must(t, admin.ACLSetUser(t.Context(), "default", "-"+command).Err())
		}
	}
	gone := filepath.Join(t.TempDir(), "gone")
	for want, sicken := range map[string]func(testing.TB, *redistest.Server, *redis.Client){
		"2":                                   without("dbsize"),
		"1 ZADD":                              without("zadd"),
		"1":                                   without("dump"),
		"READONLY the server takes no writes": demote,
		"MISCONF the server takes no writes":  loseDisk(gone),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			config := "save 3600 1000"
			if strings.HasPrefix(want, "MISCONF") {
				redistest.Must(t, os.Mkdir(gone, 0o700))
				config += "\ndir " + gone
			}
			server := redistest.Single(t, redistest.Own(), redistest.Config(config))
			admin := server.Admin(t)
			sicken(t, server, admin)
			got, err := admin.Eval(t.Context(), script, []string{"void", "mark"}).StringSlice()
			if err != nil {
				got = []string{err.Error()}
			}
			assert.Equal(t, strings.Join(got, " "), want, "the probe")
			assert.Equal(t, admin.Exists(t.Context(), "void").Val(), 0, "the key of the probe")
		})
	}
}

// asServer makes a script believe in a server of the versions ARGV[1] and ARGV[2], which can report the rights of a user if ARGV[3] is
// not empty, and denies the commands that follow.
const asServer = `
local denied = {}
for i = 4, #ARGV do denied[ARGV[i]] = true end
local function may(command) return not denied[command] and not denied['all'] end
local redis = {REDIS_VERSION_NUM = tonumber(ARGV[1]), VALKEY_VERSION_NUM = tonumber(ARGV[2]), call = function() end}
function redis.pcall(command) return not may(command) and {err = 'NOPERM'} or command == 'DUMP' and 'text' or 0 end
if ARGV[3] ~= '' then redis.acl_check_cmd = may end
`

func TestProbeAsksForTheCommandsThatTheUndoNeedsOnThatServer(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	const first, last = "GETRANGE STRLEN EXISTS TYPE HMGET SISMEMBER ZSCORE LLEN XLEN", "UNLINK SET HDEL SREM ZREM ZADD LTRIM XDEL PERSIST PEXPIREAT"
	const fields = last + " HPEXPIRETIME HPEXPIREAT"
	for _, c := range []struct {
		redis, valkey any // versions; empty: none
		denied, want  string
	}{
		{"", "", "all", "1 " + first + " PTTL " + last},
		{"", "", "HSET", "2 HSET"},
		{"", "", "SADD", "2 SADD"},
		{"", "", "DUMP", "1"},
		{"", "", "RESTORE", "1"},
		{"", "", "PTTL ZADD", "1 PTTL ZADD"},
		{"", "", "PEXPIRETIME HPEXPIRETIME", "2"},
		{0x070000, "", "all", "1 " + first + " PEXPIRETIME " + last + " HSET SADD"},
		{0x0703ff, "", "all", "1 " + first + " PEXPIRETIME " + last + " HSET SADD"},
		{0x070400, "", "all", "1 " + first + " PEXPIRETIME " + fields + " HSET SADD"},
		{0x070204, 0x0801ff, "all", "1 " + first + " PEXPIRETIME " + last + " HSET SADD"},
		{0x070204, 0x090000, "all", "1 " + first + " PEXPIRETIME " + fields + " HSET SADD"},
		{0x080000, "", "HSET", "2 HSET"},
		{0x080000, "", "SADD", "2 SADD"},
		{0x080000, "", "DUMP", "1"},
		{0x080000, "", "RESTORE", "1"},
		{0x080000, "", "PTTL", "2"},
	} {
		args := []any{c.redis, c.valkey, ""}
		if c.redis != "" {
			args[2] = "asks"
		}
		for command := range strings.FieldsSeq(c.denied) {
			args = append(args, command)
		}
		got, err := client.Eval(redistest.Soon(t), asServer+lua.Script("probe", nil), []string{"void", "mark"}, args...).StringSlice()
		redistest.Must(t, err)
		assert.Equal(t, strings.Join(got, " "), c.want, "the probe of a server %x, %x without %s", c.redis, c.valkey, c.denied)
	}
}

// loseDisk makes the server's snapshots fail.
func loseDisk(dir string) func(testing.TB, *redistest.Server, *redis.Client) {
	return func(t testing.TB, _ *redistest.Server, admin *redis.Client) {
		t.Helper()
		redistest.Must(t, os.RemoveAll(dir))
		redistest.Must(t, admin.BgSave(t.Context()).Err())
		redistest.Eventually(t, "the snapshot fails", func() bool {
			return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
		})
	}
}

// demote makes the server a replica of a missing master, so that its data stays.
func demote(t testing.TB, _ *redistest.Server, admin *redis.Client) {
	t.Helper()
	redistest.Must(t, admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
}

func TestCommitThatMeetsAReplicaWaitsForAMaster(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client, admin := server.Client(t), server.Admin(t)
	tr := rig.NewTransactor(t, client)
	demote(t, server, admin)
	before := rig.Executed(t, client)
	done := make(chan error, 1)
	go func() {
		err, _ := busy(t, tr, rig.Key(t, tr, "a", "k"))
		done <- err
	}()
	redistest.Eventually(t, "the commit is refused twice", func() bool { return rig.Executed(t, client) >= before+2 })
	redistest.Must(t, admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	rig.NoError(t, <-done)
}

func TestMissingRightWritesNothingAndNamesTheRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules   []string
		checked bool // the right is missing in commits after the check
		command int  // the index of the command with the error, or -1 for the commit
	}{
		"no EVALSHA":         {[]string{"-evalsha"}, true, -1},
		"no SCRIPT":          {[]string{"-script"}, false, -1},
		"no TIME":            {[]string{"-time"}, true, -1},
		"no key of luatx":    {[]string{"resetkeys", "~*:k*"}, true, -1},
		"no key of the user": {[]string{"resetkeys", "~*:inbox:*", "~*:void", "~*:entries", "~*:pending", "~*:broken", "~*:counts"}, true, -1},
		"no mark":            {[]string{"-hsetnx"}, true, -1},
		"no capacity":        {[]string{"resetkeys", "~*:k*", "~*:inbox:*", "~*:void", "~*:entries", "~*:pending", "~*:broken"}, true, -1},
		"no inbox":           {[]string{"-hmget"}, true, -1},
		"no inverse":         {[]string{"-hdel"}, false, -1},
		"no DEL":             {[]string{"-del"}, true, 0},
		"no SET":             {[]string{"-set"}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, admin := rig.NewUser(t, "+@all")
			tr := rig.NewTransactor(t, client)
			k := rig.Key(t, tr, "a", "k")
			rig.Run(t, admin, k, "RPUSH K a b")
			before := rig.Dump(t, admin, tr)
			redistest.Must(t, admin.ScriptFlush(t.Context()).Err())
			fresh, err := luatx.New(client, tr.Config())
			redistest.Must(t, err)
			rig.Grant(t, admin, c.rules...)
			for first, tr := range map[bool]*luatx.Transactor{true: fresh, false: tr} {
				if !first && !c.checked {
					continue
				}
				err, _ := busy(t, tr, k)
				denied(t, err, c.command)
			}
			rig.NoTrace(t, admin, tr, before)
		})
	}
}

func denied(t *testing.T, err error, command int) {
	t.Helper()
	if command >= 0 {
		var failed *luatx.CommandError
		if errors.As(err, &failed) && failed.Index == command && strings.Contains(failed.Remedy, "docs/acl.md") && strings.Contains(err.Error(), failed.Remedy) {
			return
		}
	}
	var refused *luatx.RefusedError
	if command > 0 && errors.Is(err, &luatx.RefusedError{Code: "NOPERM"}) {
		return // the right of an inverse, which the check reports first
	}
	if command >= 0 || !errors.As(err, &refused) || refused.Code != "NOPERM" || !strings.Contains(err.Error(), "docs/acl.md") {
		t.Errorf("error %v", err)
	}
}
