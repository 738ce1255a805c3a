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
// general one commit later. A missing size of the outbox is the same as 0, which an undo leaves.
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
		if strings.HasSuffix(key, ":counts") {
			entry.Value = slices.DeleteFunc(entry.Value, func(field string) bool { return field == `"bytes": "0"` })
		}
		if all.Keys[key] = entry; len(entry.Value) == 0 {
			delete(all.Keys, key)
		}
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

// unrestored matches a list of commands that were not undone.
var unrestored = regexp.MustCompile(`[A-Z]+ [^ ]+: [^;"}]*(; [A-Z]+ [^ ]+: [^;"}]*)+`)

// unneeded returns a function that takes out of an error what the two scripts list differently if they cannot undo everything:
//   - commit.lua also lists a counter whose own command has failed. That command has changed nothing.
//   - The compiled script adds all events of a batch before the commands. So it may list the removal of several events, and commit.lua
//     of only one.
func unneeded(batch []*Commit) func(string) string {
	keys := []string{"no key"}
	for _, c := range batch {
		for _, command := range c.Commands {
			if isCounter(fmt.Sprint(command.Args[0])) {
				keys = append(keys, regexp.QuoteMeta(fmt.Sprint(command.Args[1])))
			}
		}
	}
	undo := "(UNLINK|SET) (" + strings.Join(keys, "|") + `): [^;"}]*`
	before, last := regexp.MustCompile(undo+"; "), regexp.MustCompile("(; )?"+undo)
	return func(text string) string {
		text = last.ReplaceAllString(before.ReplaceAllString(text, ""), "")
		return unrestored.ReplaceAllStringFunc(text, func(list string) string {
			return strings.Join(slices.Compact(strings.Split(list, "; ")), "; ")
		})
	}
}

// differ commits a batch with the general script and with the compiled one. It returns the difference between the outcomes or the
// keys, or "".
func (w *twins) differ(t *testing.T, both [2][]*Commit) string {
	t.Helper()
	for i, batch := range both {
		w.send(t.Context(), i, batch)
	}
	excess := unneeded(both[0])
	general, generalWakes := answers(both[0])
	special, specialWakes := answers(both[1])
	for i := range general {
		general[i], special[i] = excess(general[i]), excess(special[i])
	}
	one, other := excess(w.state(t, 0)), excess(w.state(t, 1))
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

func (c *Commit) describe() string {
	shape, ok := shapeOf(c)
	return fmt.Sprintf("%s (%t) %v", shape, ok, c.Commands)
}

// emitting returns n transactions for each script, with an event of two bytes each, and with commands if wanted.
func emitting(home shard.Shard, n int, delay time.Duration, commands bool) (both [2][]*Commit) {
	for i := range 2 * n {
		c := draw{tag: "{" + slot.Text(0) + "}"}.plain(home, kind{events: 1, delay: delay}, i/2)
		if !commands {
			c.Commands, c.Keys = nil, nil
		}
		both[i%2] = append(both[i%2], c)
	}
	return both
}

// culprit matches the command that could not be undone, or the event.
var culprit = regexp.MustCompile("^command -?[0-9]+:")

// TestScriptsAgreeOnADamagedOutbox denies a part of the undo, so that the scripts differ if one of them writes its mark and the other
// does not.
func TestScriptsAgreeOnADamagedOutbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage   []any // as a command
		denied   string
		delay    time.Duration
		commands bool
		want     State
	}{
		"bodies of another type":       {[]any{"SET", "entries", "text"}, "-hdel", 0, false, Broken},
		"index of another type":        {[]any{"SET", "pending", "text"}, "-hdel", 0, false, Broken},
		"counts of another type":       {[]any{"SET", "counts", "text"}, "-hdel", 0, false, Failed},
		"no room":                      {[]any{"HSET", "counts", "bytes", "899"}, "-zrem", 0, false, Full},
		"room":                         {[]any{"HSET", "counts", "bytes", "896"}, "-zrem", 0, false, Committed},
		"a negative number":            {[]any{"HSET", "counts", "bytes", "-7"}, "+@all", time.Minute, false, Committed},
		"a number that is no bytes":    {[]any{"HSET", "counts", "bytes", "many"}, "+@all", time.Minute, false, Committed},
		"a command that fails":         {[]any{"SET", "{" + slot.Text(0) + "}k0-2", "text"}, "-unlink", 0, true, Broken},
		"commands that nothing undoes": {[]any{"SET", "pending", "text"}, "-unlink", 0, true, Failed}, // none runs
	} {
		for _, n := range []int{1, 2} {
			w := newTwins(t)
			home := w.shards.Shard(0)
			w.do(t.Context(), "ACL", "SETUSER", "user", "+@all", c.denied)
			w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
			damage := slices.Clone(c.damage)
			if name := damage[1].(string); !strings.HasPrefix(name, "{") {
				damage[1] = home.Key(name)
			}
			w.do(t.Context(), damage...)
			w.flush(t.Context())
			both := emitting(home, n, c.delay, c.commands)
			if difference := w.differ(t, both); difference != "" {
				t.Errorf("%s: %s", name, difference)
			}
			if state := both[1][0].Outcome.State; state != c.want {
				t.Errorf("%s, %d transactions: %s, want %s", name, n, state, c.want)
			}
			general, special := culprit.FindString(both[0][0].Outcome.Text), culprit.FindString(both[1][0].Outcome.Text)
			if n == 1 && general != special { // the events of a batch are added together
				t.Errorf("%s: %q failed, and in the compiled script %q", name, general, special)
			}
		}
	}
}

func TestCompiledScriptHandlesAnOutboxThatHasRoom(t *testing.T) {
	t.Parallel()
	const holds = 1 << 51
	w := newTwins(t)
	home := w.shards.Shard(0)
	for name, c := range map[string]struct {
		pending, parked, sent int
		bytes                 int    // before the transaction
		parkedBytes           any    // nil if the field is missing
		damaged               string // an index of another type
		handled               bool
	}{
		"few bytes":                    {bytes: 10, handled: true},
		"few events":                   {pending: 3, bytes: 100, handled: true},
		"the last event":               {pending: 11, bytes: 100, handled: true},
		"an event too many":            {pending: 12, bytes: 100},
		"the last byte":                {pending: 1, bytes: 897, handled: true},
		"bytes too many":               {pending: 1, bytes: 899},
		"sent events":                  {pending: 8, sent: 7, bytes: 100, handled: true},
		"sent events and one too many": {pending: 12, sent: 7, bytes: 100},
		"parked events":                {pending: 8, parked: 7, bytes: holds + 100, parkedBytes: 20, handled: true},
		"without their bytes":          {pending: 1, parked: 1, bytes: holds + 100, handled: true},
		"with malformed bytes":         {pending: 1, parked: 1, bytes: holds + 100, parkedBytes: "many"},
		"many parked events":           {parked: 9, bytes: holds, parkedBytes: 599, handled: true},
		"too many parked events":       {parked: 10, bytes: holds, parkedBytes: 599},
		"too many bytes of them":       {parked: 1, bytes: holds, parkedBytes: 600},
		"parked of another type":       {pending: 12, bytes: 100, damaged: "parked"},
		"sent of another type":         {pending: 12, bytes: 100, damaged: "sent"},
		"all kinds":                    {pending: 11, parked: 9, sent: 9, bytes: holds + 100, parkedBytes: 599, handled: true},
		"idle relays":                  {pending: 1, bytes: 1<<50 + 100, handled: true},
	} {
		w.do(t.Context(), "FLUSHDB")
		w.do(t.Context(), "HSET", home.Key("inbox:a"), "id", metaOf(time.Now().UnixMilli(), "0", 0, "i"))
		for index, n := range map[string]int{"pending": c.pending, "parked": c.parked, "sent": c.sent} {
			for i := range n {
				w.do(t.Context(), "HSET", home.Key("entries"), fmt.Sprint(index, i), "{}")
				w.do(t.Context(), "ZADD", home.Key(index), 1, fmt.Sprint(index, i))
			}
		}
		w.do(t.Context(), "HSET", home.Key("counts"), "bytes", c.bytes)
		if c.parkedBytes != nil {
			w.do(t.Context(), "HSET", home.Key("counts"), "parked_bytes", c.parkedBytes)
		}
		if c.damaged != "" {
			w.do(t.Context(), "SET", home.Key(c.damaged), "text")
		}
		w.flush(t.Context())
		both := emitting(home, 1, 0, false)
		if difference := w.differ(t, both); difference != "" {
			t.Errorf("%s: %s", name, difference)
		}
		if handled := both[1][0].compiled != nil; handled != c.handled {
			t.Errorf("%s: handled by the compiled script: %t", name, handled)
		}
	}
}
