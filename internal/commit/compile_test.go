package commit

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
)

// twins are two databases of a server. The general script decides in one, and compiled scripts decide in the other.
type twins struct {
	t       *testing.T
	clients [2]*redis.Client
	pipes   [2]redis.Pipeliner
	senders [2]*Sender
	shards  *shard.Scripts
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	constants := shard.Constants{
		Namespace: "n", Identity: "i", Retention: time.Hour, Capacity: 12, Bytes: 900, Parked: 10, ParkedBytes: 600, Lane: 10,
		UndoBytes: 40, KeptBytes: 100, Guarded: 100, Budget: 10,
	}
	w := &twins{t: t}
	redistest.Must(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "user", "on", ">user", "~*", "+@all").Err())
	for i := range w.clients {
		w.clients[i] = redis.NewClient(&redis.Options{Addr: server.Addr(), DB: i})
		w.pipes[i] = w.clients[i].Pipeline()
		t.Cleanup(func() { _ = w.clients[i].Close() })
		user := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: i, Username: "user", Password: "user"})
		t.Cleanup(func() { _ = user.Close() })
		runner := eval.New(user, constants.Namespace, slog.New(slog.DiscardHandler))
		w.senders[i] = New(runner, constants, nil)
		w.shards = shard.New(runner, constants)
	}
	w.senders[1].CompileAfter(1 << 40) // the test compiles itself
	return w
}

// do queues a command for both databases until the next flush, and ignores its result.
func (w *twins) do(ctx context.Context, args ...any) {
	for _, pipe := range w.pipes {
		pipe.Do(ctx, args...)
	}
}

func (w *twins) flush(ctx context.Context) {
	for _, pipe := range w.pipes {
		_, _ = pipe.Exec(ctx)
	}
}

func (w *twins) send(ctx context.Context, i int, batch []*Commit) {
	if sender := w.senders[i]; i == 1 {
		sender.prepare(batch[0])
		shape, ok := shapeOf(batch[0])
		if made := (&compiled{shape: shape, plan: batch[0].plan, sender: sender}); ok && batch[0].plan.settled.CompareAndSwap(false, true) {
			if sender.compile(made); batch[0].plan.compiled.Load() == nil {
				w.t.Errorf("%s: the server does not take the script", made)
			}
		}
	}
	w.senders[i].Send(ctx, time.Time{}, batch)
}

// A draw generates random transactions.
type draw struct {
	*rand.Rand

	tag string
}

func (d draw) one(of ...string) string { return of[d.IntN(len(of))] }

// kinds are the commands of random transactions, with a letter for each argument: k a key, f a field, v a value, n a number, m a number
// to add.
var kinds = strings.Split(strings.TrimSpace(`
SET k v
SET k v EX 100
SET k v KEEPTTL
SETNX k v
GETSET k v
GETDEL k
APPEND k v
SETRANGE k n v
INCR k
INCRBY k m
DECR k
DECRBY k m
INCRBYFLOAT k n
HSET k f v
HSET k f v f v f v
HSETNX k f v
HINCRBY k f n
HINCRBYFLOAT k f n
HMSET k f v f v
GET k
HGET k f
HMGET k f f
TTL k
LLEN k
SADD k v
DEL k
ZADD k n v
RPUSH k v v
`), "\n")

// values are commands that set keys before a transaction; k is the key.
var values = strings.Split(strings.TrimSpace(`
SET k 7
SET k 7 PX 5000000
SET k 007
SET k -7
SET k -99999999999999
SET k 999999999999999
SET k 1000000000000000
SET k 9007199254740990
SET k 9223372036854775807
SET k word
SET k 12345678901234567890123456789012345678901234567890
HSET k a 1 b word
HSET k a 9007199254740990 b 1 c 12345678901234567890123456789012345678901234567890
HSET k a 9223372036854775807
HSET k z 1
RPUSH k a b
SADD k a
ZADD k 1 a
`), "\n")

// denied lists commands that a user may not be allowed to run. Transactions, events and the undo use them.
var denied = strings.Fields("hincrby set getrange strlen exists pexpiretime pexpireat unlink incr incrby append zadd zrem zcount zcard xack hdel")

// deniable returns the denied commands without those that commit.lua needs for the undo of a counter and a compiled script does not
// need. The check at the start refuses a user without them.
func (k kind) deniable() []string {
	if !slices.ContainsFunc(k.commands, func(words []string) bool { return counts(words[0]) }) {
		return denied
	}
	return slices.DeleteFunc(slices.Clone(denied), func(name string) bool { return name == "getrange" || name == "exists" })
}

func (d draw) command(words []string, key string) Command {
	args := make([]any, len(words))
	for i, word := range words {
		switch word {
		case "k":
			args[i] = key
		case "f":
			args[i] = d.one("a", "b", "c", "d")
		case "v":
			args[i] = d.one("", "x", "1", "some text")
		case "n":
			args[i] = d.one("0", "1", "5", "-3", "10")
		case "m":
			args[i] = d.one("0", "1", "-3", "5000000000", "-99999999999999", "999999999999999", "1000000000000000", "9223372036854775807", "-9223372036854775808", "01", "x")
		default:
			args[i] = word
		}
	}
	spec, err := command.Lookup(args)
	if err != nil {
		panic(err)
	}
	return Command{Head: spec.Head(args), Args: args}
}

// kind describes the transactions of one plan.
type kind struct {
	positioned bool
	commands   [][]string
	events     int
	ack        Ack
	delay      time.Duration
}

func (d draw) kind() kind {
	k := kind{positioned: d.IntN(3) == 0, events: d.IntN(3), ack: [...]Ack{AckNone, AckFence, AckFused, AckFused}[d.IntN(4)], delay: time.Duration(d.IntN(2)) * time.Minute}
	for range d.IntN(5) {
		k.commands = append(k.commands, strings.Fields(d.one(kinds...)))
	}
	return k
}

// batch returns the transactions of a kind, with separate keys. It returns them twice, so that the senders do not share
// them.
func (d draw) batch(home shard.Shard, k kind) [2][]*Commit {
	var both [2][]*Commit
	for i := range 1 + max(0, d.IntN(8)-3) {
		c := Commit{
			Shard: home, Digest: fmt.Sprintf("digest%010d", i), Token: fmt.Sprintf("token%05d", i),
			NotAfter: time.Now().Add(time.Hour), Delay: k.delay,
		}
		switch d.IntN(30) {
		case 0:
			c.NotAfter = time.Now().Add(-time.Minute)
		case 1:
			c.Digest = "digest0000000000"
		case 2:
			c.Token = "token00000"
		}
		if k.ack != AckNone {
			c.Input = Input{Ack: k.ack, Stream: d.tag + "stream", Group: "g", Consumer: "c", Entry: fmt.Sprintf("%d-0", i+1)}
		}
		if k.positioned {
			c.Position = d.position(i)
		}
		for n := range k.events {
			id := fmt.Sprintf("event %d of %d", n, i)
			if d.IntN(30) == 0 {
				id = "event 0 of 0"
			}
			c.Events = append(c.Events, shard.Event{ID: id, Body: []byte(strings.Repeat("x", d.IntN(80)))})
		}
		for n, words := range k.commands {
			at := n
			if d.IntN(6) == 0 {
				at = d.IntN(n + 1) // of an earlier command
			}
			key := fmt.Sprintf("%sk%d-%d", d.tag, i, at)
			c.Commands = append(c.Commands, d.command(words, key))
			if !slices.Contains(c.Keys, key) {
				c.Keys = append(c.Keys, key)
			}
		}
		for n := range both {
			twin := c
			both[n] = append(both[n], &twin)
		}
	}
	return both
}

const hour = int64(time.Hour / time.Millisecond) // the retention

// metaOf returns the field id of an inbox.
func metaOf(start int64, older string, horizon int64, identity string) string {
	return fmt.Sprintf("%013d%013d%s%013d%s", start+hour, start, older, horizon, identity)
}

// prepare sets the keys of a shard and of transactions to a random state.
func (d draw) prepare(ctx context.Context, w *twins, home shard.Shard) {
	key, now := home.Key, time.Now().UnixMilli()
	switch d.IntN(24) {
	case 0: // no transaction yet
	case 1:
		w.do(ctx, "SET", key("inbox:a"), "no hash")
	case 2:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", 0, "another"))
	case 3:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", now+hour, "i"), d.one("ttoken00000", "ttoken00001"), "1")
	case 4:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-hour-1000, "0", 0, "i"), "digest0000000001", "token00009")
	case 5:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-3*hour, "0", 0, "i"), "digest0000000000", "token00009")
	case 6:
		w.do(ctx, "HSET", key("inbox:a"), "id", d.one(
			metaOf(now+hour, "0", 0, "i"), fmt.Sprintf("%013d%013d0%013di", now-1, now-hour/2, 0), fmt.Sprintf("%013d%013d0%013di", now+hour, now-2*hour, 0),
			metaOf(now, "0", 0, "in"), "1"+metaOf(now, "0", 0, "i"), metaOf(now, "0", 0, "i")[1:]))
	case 7:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "1", 0, "i"))
		w.do(ctx, "HSET", key("inbox:b"), "id", metaOf(now-hour, "0", 0, "i"), d.one("digest0000000000", "digest0000000001", "other"), "token00009")
	case 8:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", 0, "i"), "digest0000000000", d.one("token00000", "token00001", "another000", "token00000!"))
		w.do(ctx, "HSET", key("broken"), "digest0000000000", "ZREM pending: denied")
	default:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-d.Int64N(hour/2), "0", 0, "i"))
	}
	for i := range 2 {
		if record := d.record(); record != "" {
			w.do(ctx, "HSET", key("positions"), fmt.Sprintf("orders/%d", i), record)
		}
	}
	if d.IntN(30) == 0 {
		w.do(ctx, "SET", key("positions"), "no hash")
	}
	switch d.IntN(30) {
	case 0:
	case 1:
		w.do(ctx, "HSET", key("counts"), "totals", d.one("11 0 11 0 0", "12 0 12 0 0", "0 0 0 10 0", "0 0 0 0 600", "1 890 1 0 0", "words"))
	case 2:
		w.do(ctx, "SET", key(d.one("counts", "entries", "pending")), "another type")
	case 3:
		w.do(ctx, "HSET", key("entries"), "event 0 of 0", d.one("another body", "", "=da39a3ee5e6b4b0d3255bfef95601890afd80709"))
		w.do(ctx, "HSET", key("counts"), "totals", d.one("1 12 3 0 0", "1 12 3 0 0 idle"))
	case 4:
		w.do(ctx, "HSET", key("counts"), "totals", "1 0 4 1 2")
		w.do(ctx, "ZADD", key("pending"), d.one("1", "9999999999999"), "another")
	default:
		w.do(ctx, "HSET", key("counts"), "totals", "0 0 2 1 5", "duplicate", "1")
	}
	for i := range 8 {
		for n := range 4 {
			if d.IntN(4) == 0 {
				words := strings.Fields(d.one(values...))
				args := make([]any, len(words))
				for at, word := range words {
					args[at] = word
				}
				args[1] = fmt.Sprintf("%sk%d-%d", d.tag, i, n)
				w.do(ctx, args...)
				if d.IntN(2) == 0 {
					w.do(ctx, "HPEXPIRE", args[1], 5000000, "FIELDS", 1, d.one("a", "b", "c")) // since Redis 7.4
				}
			}
		}
	}
	d.input(ctx, w)
}

// input creates a stream with entries that are pending for consumer c or another one.
func (d draw) input(ctx context.Context, w *twins) {
	stream := d.tag + "stream"
	for i := range 8 {
		w.do(ctx, "XADD", stream, fmt.Sprintf("%d-0", i+1), "f", "v")
	}
	w.do(ctx, "XGROUP", "CREATE", stream, "g", "0")
	w.do(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", stream, ">")
	switch d.IntN(20) {
	case 0:
		w.takeOver(ctx, stream, d.one("1-0", "2-0"))
	case 1:
		w.takeOver(ctx, stream, "8-0")
	case 2:
		w.do(ctx, "SET", group.TakenKey(stream), "no hash")
	case 3:
		w.do(ctx, "DEL", stream)
	}
}

func (w *twins) takeOver(ctx context.Context, stream, entry string) {
	w.flush(ctx)
	for _, client := range w.clients {
		other := group.Member{Client: client, Stream: stream, Group: "g", Consumer: "other"}
		_, _ = other.Claim(ctx, 0, []string{entry})
	}
}

// reasons match why transactions with a failed rollback were undone. A compiled script may have found another reason first.
var reasons = regexp.MustCompile(`command -?[0-9]+: [^;]*; (make it the last command; )?not restored`)

var moments = regexp.MustCompile(`1[0-9]{12}|1\.[0-9]+e\+12`)

// state returns the content of a database with its times replaced, because transactions that a compiled script passes to the
// general one commit later.
func (w *twins) state(t *testing.T, i int) string {
	t.Helper()
	all, err := redistest.Dump(t.Context(), w.clients[i])
	redistest.Must(t, err)
	for key, entry := range all.Keys {
		for n := range entry.Value {
			entry.Value[n] = reasons.ReplaceAllString(moments.ReplaceAllString(entry.Value[n], "T"), "not restored")
		}
		if entry.Type == "zset" {
			slices.Sort(entry.Value)
		}
		entry.ExpireAt = min(entry.ExpireAt, 1)
		all.Keys[key] = entry
	}
	return strings.ReplaceAll(fmt.Sprintf("%+v", all.Keys), "} ", "}\n")
}

// answers returns the outcomes of a batch. The order of the commits of a script is not defined, so any of them may wake the
// relays.
func answers(batch []*Commit) (list []string, woken bool) {
	for _, c := range batch {
		out := c.Outcome
		woken = woken || out.Woken
		out.Woken, out.Text = false, reasons.ReplaceAllString(out.Text, "not restored")
		list = append(list, fmt.Sprintf("%+v %v", out, c.Err))
	}
	return list, woken
}

// round sends random transactions of a kind to both databases, with a random state. It returns the batch that compiled
// scripts handled, and the difference.
func (w *twins) round(t *testing.T, d draw, k kind) (sent []*Commit, difference string) {
	t.Helper()
	ctx, home := t.Context(), w.shards.Shard(0)
	w.do(ctx, "FLUSHDB")
	if d.IntN(8) == 0 {
		w.do(ctx, "ACL", "SETUSER", "user", "-"+d.one(k.deniable()...))
		defer func() {
			w.do(ctx, "ACL", "SETUSER", "user", "+@all")
			w.flush(ctx)
		}()
	}
	d.prepare(ctx, w, home)
	w.flush(ctx)
	both := d.batch(home, k)
	return both[1], w.differ(t, both)
}

// differ commits a batch with the general script and with the compiled one. It returns the difference between the outcomes or the
// keys, or "".
func (w *twins) differ(t *testing.T, both [2][]*Commit) string {
	t.Helper()
	for i, batch := range both {
		w.send(t.Context(), i, batch)
	}
	general, generalWakes := answers(both[0])
	special, specialWakes := answers(both[1])
	one, other := w.state(t, 0), w.state(t, 1)
	if slices.Equal(general, special) && generalWakes == specialWakes && one == other {
		return ""
	}
	return fmt.Sprintf("%s\nanswers\n%s, wakes %t\nand compiled\n%s, wakes %t\nleaves\n%s\nand compiled\n%s",
		both[0][0].describe(), strings.Join(general, "\n"), generalWakes, strings.Join(special, "\n"), specialWakes, one, other)
}

// TestCompiledScriptsDecideAsTheGeneralOne sends random transactions on random states both ways.
func TestCompiledScriptsDecideAsTheGeneralOne(t *testing.T) {
	t.Parallel()
	w, seed, n := newTwins(t), uint64(1), 1_200
	if os.Getenv("LUATX_VERIFY") != "" {
		seed, n = rand.Uint64(), 100_000
	}
	if again, err := strconv.ParseUint(os.Getenv("LUATX_SEED"), 10, 64); err == nil {
		seed = again
	}
	var alone, together, left int
	for i := range n {
		d := draw{rand.New(rand.NewPCG(seed, uint64(i))), "{" + slot.Text(0) + "}"}
		sent, difference := w.round(t, d, d.kind())
		if difference != "" {
			t.Fatalf("seed %d, round %d: %s", seed, i, difference)
		}
		for _, c := range sent {
			switch {
			case c.compiled == nil:
				left++
			case len(sent) > 1:
				together++
			default:
				alone++
			}
		}
	}
	t.Logf("%d transactions alone in a compiled script, %d in batches, %d in the general script", alone, together, left)
	if few := n / 10; alone < few || together < few || left < few {
		t.Error("one of them is too rare")
	}
}

// TestUndoKeepsTheExpiryOfEachField sends transactions that fail after an HSET of three fields, one of which expires.
func TestUndoKeepsTheExpiryOfEachField(t *testing.T) {
	t.Parallel()
	w, d := newTwins(t), draw{rand.New(rand.NewPCG(1, 1)), "{" + slot.Text(0) + "}"}
	hash, counter := d.tag+"hash", d.tag+"counter"
	twice := func(digest string, commands ...string) (both [2][]*Commit) {
		for i := range both {
			c := &Commit{
				Shard: w.shards.Shard(0), Digest: "digest000000000" + digest, Token: "token0000" + digest, NotAfter: time.Now().Add(time.Hour),
				Keys: []string{hash, counter},
			}
			for n, words := range commands {
				c.Commands = append(c.Commands, d.command(strings.Fields(words), c.Keys[n]))
			}
			both[i] = []*Commit{c}
		}
		return both
	}
	for i, field := range []string{"a", "b", "c"} {
		w.do(t.Context(), "FLUSHDB")
		w.flush(t.Context())
		if difference := w.differ(t, twice("0", "HSET k a 1 b 2 c 3", "SET k word")); difference != "" {
			t.Fatal(difference)
		}
		for _, client := range w.clients {
			if err := client.HPExpire(t.Context(), hash, time.Hour, field).Err(); err != nil {
				t.Skip("fields do not expire before Redis 7.4 and Valkey 9:", err)
			}
		}
		both := twice(strconv.Itoa(i+1), "HSET k a x b x c x", "INCR k")
		if difference := w.differ(t, both); difference != "" {
			t.Error(field, difference)
		}
		for n, client := range w.clients {
			if left := client.HPTTL(t.Context(), hash, field).Val(); both[n][0].Outcome.State == Committed || len(left) != 1 || left[0] <= 0 {
				t.Errorf("%s: %v, and the field expires in %v ms", field, both[n][0].Outcome.State, left)
			}
		}
	}
}

func (c *Commit) describe() string {
	shape, ok := shapeOf(c)
	return fmt.Sprintf("%s (%t) %v", shape, ok, c.Commands)
}
