package commit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// TestCommandsInATransactionBehaveAsDirectOnes runs every allowed command of the server with random arguments, in a transaction
// and directly, each on a separate data set. Replies and data must be the same.
func TestCommandsInATransactionBehaveAsDirectOnes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LUATX_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("LUATX_SEED=%d", seed)
	rounds := 8
	if os.Getenv("LUATX_VERIFY") != "" {
		rounds *= 50
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			d := newDifferential(t, protocol, rand.New(rand.NewPCG(seed, uint64(protocol))))
			for round := range rounds {
				d.round(round)
			}
			d.covered(t)
		})
	}
}

// differential is a run of the test with one protocol.
type differential struct {
	t       *testing.T
	client  *redis.Client
	tr      *luatx.Transactor
	random  *rand.Rand
	typed   bool // with the commands of go-redis instead of Do
	version string
	has     map[string]*redis.CommandInfo
	rows    map[string][]string
	later   string
	dumps   []string // payloads for RESTORE

	mu        sync.Mutex
	succeeded map[string]int
}

func newDifferential(t *testing.T, protocol int, random *rand.Rand) *differential {
	client := redistest.Shared(t).Client(t, func(o *redis.Options) { o.Protocol = protocol })
	d := &differential{
		t: t, client: client, tr: rig.NewTransactor(t, client), random: random, typed: protocol == 3,
		later: strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10), rows: make(map[string][]string), succeeded: make(map[string]int),
	}
	ctx := t.Context()
	has, err := client.Command(ctx).Result()
	redistest.Must(t, err)
	d.has = has
	d.version = regexp.MustCompile(`redis_version:(\d+\.\d+)`).FindStringSubmatch(client.Info(ctx, "server").Val())[1]
	for line := range strings.Lines(strings.TrimSpace(rig.CommandRows)) {
		name, lists, _ := strings.Cut(line, ": ")
		d.rows[name] = strings.Split(strings.TrimSpace(lists), " | ")
	}
	for _, s := range command.All() {
		if len(d.rows[s.Name]) == 0 {
			t.Errorf("no arguments to try %s with", s.Name)
		}
	}
	for _, name := range []string{"str", "hash", "zset", "stream"} {
		k := rig.Key(t, d.tr, "dumped", name)
		d.setUp(ctx, name, k)
		d.dumps = append(d.dumps, client.Dump(ctx, k).Val())
	}
	return d
}

// known reports whether the server has the command.
func (d *differential) known(s command.Spec) bool {
	name, _, isSubcommand := strings.Cut(s.Name, " ")
	return d.has[strings.ToLower(name)] != nil && (!isSubcommand || compareVersions(s.Since, d.version) <= 0)
}

func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range 2 {
		m, _ := strconv.Atoi(x[i])
		n, _ := strconv.Atoi(y[i])
		if c := cmp.Compare(m, n); c != 0 {
			return c
		}
	}
	return 0
}

// covered checks that every command of the server has succeeded, and that there are many.
func (d *differential) covered(t *testing.T) {
	want := 110
	if compareVersions(d.version, "8.0") >= 0 {
		want = 140
	}
	known := 0
	for _, s := range command.All() {
		if !d.known(s) {
			continue
		}
		known++
		if d.succeeded[s.Name] == 0 {
			t.Errorf("%s never succeeded", s.Name)
		}
	}
	if known < want {
		t.Errorf("%d commands were run, want %d", known, want)
	}
	t.Logf("Redis %s: %d commands", d.version, known)
}

// trial is one list of arguments that is run on two data sets.
type trial struct {
	id    int
	name  string
	fetch string   // how go-redis reads the reply
	look  string   // how the replies are compared
	keys  []string // the names of the keys among the words
	words []string // $name stands for a key
	tail  bool     // another command follows
}

// round runs each command with one list of arguments, several trials at a time, and compares the data at the end.
func (d *differential) round(round int) {
	var trials []trial
	for _, s := range command.All() {
		if d.known(s) {
			trials = append(trials, d.draw(s.Name, round))
		}
	}
	for i := range trials {
		trials[i].id = round*1000 + i
	}
	var workers sync.WaitGroup
	next := make(chan trial)
	for range 2 {
		workers.Go(func() {
			for c := range next {
				d.run(c)
			}
		})
	}
	for _, c := range trials {
		next <- c
	}
	close(next)
	workers.Wait()
	d.compareData(trials)
}

// draw returns a random trial. In round 0 it is a simple one.
func (d *differential) draw(name string, round int) trial {
	lists := d.rows[name]
	list := lists[0]
	if round > 0 {
		list = lists[d.random.IntN(len(lists))]
	}
	line, how, _ := strings.Cut(list, " => ")
	c := trial{name: name, tail: d.random.IntN(2) == 0}
	c.fetch, c.look, _ = strings.Cut(how, " ")
	all := slices.Sorted(maps.Keys(rig.CommandKeys))
	for word := range strings.FieldsSeq(line) {
		token, isToken := strings.CutPrefix(word, "$")
		token, fixed := strings.CutSuffix(token, "!")
		_, isKey := rig.CommandKeys[token]
		switch {
		case token == "any", isKey && !fixed && round > 0 && d.random.IntN(12) == 0:
			word = "$" + all[d.random.IntN(len(all))]
			c.keys = append(c.keys, word[1:])
		case isKey:
			word = "$" + token
			c.keys = append(c.keys, token)
		case isToken:
			word = d.value(token, round > 0)
		}
		c.words = append(c.words, word)
	}
	return c
}

func (d *differential) value(token string, wild bool) string {
	switch token {
	case "at":
		return d.later[:10]
	case "atms":
		return d.later
	case "dump":
		return d.dumps[d.random.IntN(len(d.dumps))]
	}
	values := rig.CommandValues[token]
	if len(values) == 0 {
		d.t.Fatalf("$%s stands for nothing", token)
	}
	if !wild {
		return values[0]
	}
	return values[d.random.IntN(len(values))]
}

func (d *differential) setUp(ctx context.Context, name, k string) {
	for _, line := range rig.CommandKeys[name] {
		var args []any
		for word := range strings.SplitSeq(line, " ") {
			switch word {
			case "K":
				word = k
			case "$later":
				word = d.later
			}
			args = append(args, word)
		}
		if err := d.client.Do(ctx, args...).Err(); err != nil && args[0] != "HPEXPIREAT" {
			d.t.Errorf("%q: %v", args, err)
		}
	}
}

// args returns the arguments of a trial on an aggregate, and creates its keys.
func (d *differential) args(ctx context.Context, c trial, aggregate string) []any {
	k := func(name string) string { return rig.Key(d.t, d.tr, aggregate, name) }
	for _, name := range slices.Compact(slices.Sorted(slices.Values(c.keys))) {
		d.setUp(ctx, name, k(name))
	}
	var args []any
	for word := range strings.FieldsSeq(c.name) {
		args = append(args, word)
	}
	for _, word := range c.words {
		if name, ok := strings.CutPrefix(word, "$"); ok {
			if _, isKey := rig.CommandKeys[name]; isKey {
				word = k(name)
			}
		}
		args = append(args, word)
	}
	return args
}

// run runs a trial in a transaction and directly.
func (d *differential) run(c trial) {
	ctx := d.t.Context()
	inside, outside := fmt.Sprintf("diff-a-%d", c.id), fmt.Sprintf("diff-b-%d", c.id)
	fetch := c.fetch
	if !d.typed && c.id%2 == 0 && c.look != "typed" {
		fetch = "cmd"
	}
	recorded := fetchers[fetch](ctx, d.args(ctx, c, inside))
	tail := redis.NewStatusCmd(ctx, "SET", rig.Key(d.t, d.tr, inside, "tail"), "v")
	_, err := d.tr.Transact(ctx, inside, func(tx *luatx.Tx) error {
		_ = tx.Pipeline().Process(ctx, recorded)
		if c.tail {
			_ = tx.Pipeline().Process(ctx, tail)
		}
		return nil
	})
	if errors.Is(err, luatx.ErrCommandRefused) {
		return // an invalid form or number of arguments, which is not sent
	}
	text := ""
	var failed *luatx.CommandError
	switch {
	case errors.As(err, &failed):
		text = failed.Text
	case err != nil:
		d.t.Errorf("%q: %v", recorded.Args(), err)
		return
	case recorded.Err() != nil:
		text = recorded.Err().Error()
	}

	direct := fetchers[fetch](ctx, d.args(ctx, c, outside))
	d.compareKeys(ctx, direct.Args())
	_ = d.client.Process(ctx, direct)
	want := ""
	if direct.Err() != nil {
		want = direct.Err().Error()
	}
	if c.tail && !refusedByServer(direct.Err()) {
		d.client.Set(ctx, rig.Key(d.t, d.tr, outside, "tail"), "v", 0)
	}
	if errorText(text) != errorText(want) {
		d.t.Errorf("%q: error %q, directly %q", recorded.Args(), text, want)
		return
	}
	if want != "" && !errors.Is(direct.Err(), redis.Nil) {
		return
	}
	d.mu.Lock()
	d.succeeded[c.name]++
	d.mu.Unlock()
	got, direct2 := reply(recorded), reply(direct)
	if !sameReply(got, direct2, c.look) {
		d.t.Errorf("%q: reply %s, directly %s", recorded.Args(), render(got), render(direct2))
	}
}

// compareKeys compares the keys that a transaction declares with those that the server finds.
func (d *differential) compareKeys(ctx context.Context, args []any) {
	want, err := d.client.Do(ctx, append([]any{"COMMAND", "GETKEYS"}, args...)...).StringSlice()
	if err != nil {
		return // invalid arguments
	}
	spec, _ := command.Lookup(args)
	positions, err := spec.Keys(args)
	got := make([]string, len(positions))
	for i, at := range positions {
		got[i] = fmt.Sprint(args[at])
	}
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		d.t.Errorf("%q: keys %q, %v; the server says %q", args, got, err, want)
	}
}

// refusedByServer reports whether an error is a server's, not nil or a reply that go-redis could not read.
func refusedByServer(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered && !errors.Is(err, redis.Nil)
}

// errorText returns an error without the parts that differ between a script and a direct call.
func errorText(text string) string {
	if strings.Contains(strings.ToLower(text), "wrong number of arg") {
		return "wrong number of arguments"
	}
	text, _, _ = strings.Cut(text, " script: ")
	text = strings.TrimPrefix(text, "ERR ")
	return strings.ReplaceAll(text, "{diff-b-", "{diff-a-")
}

// compareData compares the data that the two sides of the trials leave.
func (d *differential) compareData(trials []trial) {
	ctx, prefix := d.t.Context(), d.tr.Config().Namespace
	state, err := redistest.Dump(ctx, d.client, prefix+":{diff-*")
	redistest.Must(d.t, err)
	sides := map[string]map[string]redistest.Entry{"diff-a-": {}, "diff-b-": {}}
	for k, entry := range state.Keys {
		for side, keys := range sides {
			if id, ok := strings.CutPrefix(k, prefix+":{"+side); ok {
				keys[id] = canonical(entry)
			}
		}
	}
	if len(sides["diff-a-"]) < len(trials)/2 {
		d.t.Errorf("%d trials left %d keys: nothing is compared", len(trials), len(sides["diff-a-"]))
	}
	for _, c := range trials {
		own := func(side string) map[string]redistest.Entry {
			all := make(map[string]redistest.Entry)
			for _, name := range append(c.keys, "tail") {
				k := fmt.Sprintf("%d}:%s", c.id, name)
				if entry, ok := sides[side][k]; ok {
					all[name] = entry
				}
			}
			return all
		}
		a, b := own("diff-a-"), own("diff-b-")
		if !maps.EqualFunc(a, b, sameEntry) {
			d.t.Errorf("%s %q: another state directly:\n%s", c.name, c.words, redistest.Diff(redistest.State{Keys: a}, redistest.State{Keys: b}))
		}
	}
	for k := range state.Keys {
		d.client.Del(ctx, k)
	}
}

var (
	serverID    = regexp.MustCompile(`\b1\d{12}-\d+\b`) // created by a server from its clock
	fieldExpiry = regexp.MustCompile(`expires \d+`)
)

// canonical removes values from an entry that depend on the clock.
func canonical(e redistest.Entry) redistest.Entry {
	for i, line := range e.Value {
		line = serverID.ReplaceAllString(line, "now")
		e.Value[i] = fieldExpiry.ReplaceAllString(line, "expires")
	}
	return e
}

func sameEntry(a, b redistest.Entry) bool {
	near := (a.ExpireAt == 0) == (b.ExpireAt == 0) && max(a.ExpireAt-b.ExpireAt, b.ExpireAt-a.ExpireAt) < 10_000
	return a.Type == b.Type && near && slices.Equal(a.Value, b.Value)
}
