package luatx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/record"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/scripted"
)

func TestEachRunOfADeliveryHasATokenOfItsOwnUnderOneBase(t *testing.T) {
	t.Parallel()
	d := newDelivery(nil)
	for run := 1; run <= 300; run++ {
		if got, want := d.token(), d.base()+string([]byte{byte(run >> 8), byte(run)}); got != want || len(d.base()) != 8 {
			t.Fatalf("run %d has the token %q, want %q", run, got, want)
		}
	}
}

func TestCodeOfAnErrorIsTheFirstKnownWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"OOM command not allowed": "OOM",
		"CUSTOM text":             "CUSTOM",
		"":                        "",
		"ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write": "READONLY",
		"ERR Error running script (call to f_1): @user_script:1: OOM command not allowed":   "OOM",
		"ERR ACL failure in script: no rights":                                              "NOPERM",
		"BUSY ACL failure in script":                                                        "BUSY",
	} {
		if got := codeOf(text); got != want {
			t.Errorf("the code of %q is %q, want %q", text, got, want)
		}
	}
}

func TestErrorOfTheServerSaysWhatItRefuses(t *testing.T) {
	t.Parallel()
	tr := unconnected(t)
	for want, err := range map[string]error{
		"luatx: script commit: ERR Error compiling script": &eval.ServerError{Script: "commit", Err: errors.New("ERR Error compiling script")},
		"luatx: not committed: the server refuses: OOM x":  &eval.ServerError{Script: "commit", Err: errors.New("OOM x")},
		"luatx: not committed: closed":                     errors.New("closed"),
	} {
		if got := tr.serverError(err); got == nil || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("%v is reported as %v, want %q", err, got, want)
		}
	}
}

func TestGatheredTransactionsAreSortedByTheirEntriesThenByTheirOffsets(t *testing.T) {
	t.Parallel()
	tr := unconnected(t)
	want := []string{" 7", " 8", "1-2", "1-10", "2-1", "9-9", "10-0", "10-1"}
	var batch []*Tx
	for _, i := range []int{3, 7, 0, 5, 2, 6, 1, 4} {
		tx := begun(tr)
		entry, offset, _ := strings.Cut(want[i], " ")
		tx.commit.Input.Entry = entry
		if entry == "" {
			link.SetClaim(tx, &link.Claim{Position: commit.Position{Offset: offset}})
		}
		batch = append(batch, tx)
	}
	inOrder(batch)
	for i, tx := range batch {
		if got := strings.TrimSuffix(tx.commit.Input.Entry+" "+tx.offset(), " "); got != want[i] {
			t.Errorf("transaction %d is %q, want %q", i, got, want[i])
		}
	}
}

type noRelay struct{}

func (noRelay) Reserve() (time.Duration, bool)     { return 0, false }
func (noRelay) Committed(int, []shard.Event, bool) {}

func TestClockFollowsTheServersReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr, now := &Transactor{}, time.Now()
		for i, c := range []struct{ reading, want time.Duration }{
			{50 * time.Millisecond, 50 * time.Millisecond}, // the first one always counts
			{50*time.Millisecond + drift, 50 * time.Millisecond},
			{50*time.Millisecond - drift, 50 * time.Millisecond},
			{time.Hour, time.Hour},
			{time.Hour - 80*time.Millisecond, time.Hour},
			{time.Hour + drift + 1, time.Hour + drift + 1},
			{time.Hour, time.Hour},
			{-time.Hour, -time.Hour},
		} {
			tr.setClock(now.Add(c.reading))
			if got := tr.serverTime(now).Sub(now); got != c.want {
				t.Errorf("after reading %d the server is ahead by %v, want %v", i, got, c.want)
			}
		}
	})
}

func TestCheckSetsTheClock(t *testing.T) {
	t.Parallel()
	server := scripted.New(func(cmd []string) any {
		switch cmd[0] {
		case "time":
			return []any{"4000000000", "0"}
		case "evalsha":
			return []any{"2"}
		}
		return scripted.Status("OK")
	})
	tr, err := New(server.Client(t), Config{Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tr.serverTime(time.Now()); got.Before(time.Unix(4_000_000_000, 0)) {
		t.Errorf("the server's time is %v", got)
	}
}

func TestQueuedHidesOnlyThatACommandIsRecorded(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for err, want := range map[error]error{nil: nil, ErrNotCommitted: nil, fmt.Errorf("an adapter: %w", ErrNotCommitted): nil, other: other} {
		cmd := redis.NewIntCmd(t.Context(), "incr", "k")
		cmd.SetErr(err)
		if got := Queued(cmd); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("an error of %v becomes %v, want %v", err, got, want)
		}
	}
}

// readingTx begins a transaction whose reads have the rows that row returns for their keys, or else the reply that it returns.
func readingTx(t *testing.T, row func(key string) any) (*Tx, *scripted.Server) {
	t.Helper()
	server := scripted.New(func(cmd []string) any {
		if cmd[0] != "evalsha" {
			return scripted.Status("OK")
		}
		rows := []any{}
		n, _ := strconv.Atoi(cmd[2])
		for _, key := range cmd[4 : 3+n] {
			answer := row(key)
			if _, ok := answer.([]any); !ok {
				return answer
			}
			rows = append(rows, answer)
		}
		return rows
	})
	tr, err := New(server.Client(t), Config{Namespace: "shop", MaxCommands: 2, GuardBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return begun(tr), server
}

func get(ctx context.Context, tx *Tx, keys ...string) ([]redis.Cmder, error) {
	return tx.Read().Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.Get(ctx, key)
		}
		return nil
	})
}

func TestPipelineOfReadsHasTheFirstErrorAndEachReadItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows        map[string]any
		first       string
		one, second string
	}{
		"of one":           {map[string]any{"{tag}1": []any{1, "a", "d", 65}, "{tag}2": []any{0, "WRONGTYPE x", "d", 1}}, "WRONGTYPE x", "", "WRONGTYPE x"},
		"of both":          {map[string]any{"{tag}1": []any{0, "ERR y", "d", 1}, "{tag}2": []any{0, "WRONGTYPE x", "d", 1}}, "ERR y", "ERR y", "WRONGTYPE x"},
		"of the script":    {map[string]any{"{tag}1": errors.New("ERR y")}, "luatx: read: ", "luatx: read: ", "luatx: read: "},
		"of another reply": {map[string]any{"{tag}1": "text"}, "luatx: read: script read: ", "luatx: read: ", "luatx: read: "},
		"none":             {map[string]any{"{tag}1": []any{1, "a", "d", 65}, "{tag}2": []any{1, "b", "d", 65}}, "", "", ""},
	} {
		tx, _ := readingTx(t, func(key string) any { return c.rows[key] })
		cmds, err := get(t.Context(), tx, "{tag}1", "{tag}2")
		for i, got := range []error{err, cmds[0].Err(), cmds[1].Err()} {
			want := []string{c.first, c.one, c.second}[i]
			if (got == nil) != (want == "") || got != nil && !strings.HasPrefix(got.Error(), want) {
				t.Errorf("%s: error %d is %v, want %q", name, i, got, want)
			}
		}
	}
}

func TestReadRejectsWhatItCannotSendOrUnderstand(t *testing.T) {
	t.Parallel()
	tx, server := readingTx(t, func(string) any { return []any{1, "no number", "d", 65} })
	if err := tx.Read().SIsMember(t.Context(), "{tag}k", struct{}{}).Err(); !errors.Is(err, ErrCommandRefused) {
		t.Errorf("an argument that cannot be sent: %v", err)
	}
	if heard := server.Heard(); len(heard) > 0 {
		t.Errorf("the server was asked for %v", heard)
	}
	if err := tx.Read().StrLen(t.Context(), "{tag}k").Err(); err == nil || !strings.HasPrefix(err.Error(), "luatx: read: ") || len(tx.guards) > 0 {
		t.Errorf("a text in place of a number: %v, %d guards", err, len(tx.guards))
	}
}

func TestReadsMayReachTheirLimits(t *testing.T) {
	t.Parallel()
	for weight, want := range map[int]error{500: nil, 501: ErrTooLarge} {
		tx, server := readingTx(t, func(string) any { return []any{1, "a", "d", weight} })
		if _, err := get(t.Context(), tx, "{tag}1", "{tag}2", "{tag}3"); !errors.Is(err, ErrTooLarge) {
			t.Errorf("three reads: %v", err)
		}
		if _, err := get(t.Context(), tx, "{tag}1"); err != nil {
			t.Errorf("one read: %v", err)
		}
		if _, err := get(t.Context(), tx, "{tag}2"); !errors.Is(err, want) {
			t.Errorf("reads of %d bytes each: %v, want %v", weight, err, want)
		}
		for i, room := range []int{1000, 1000 - weight} {
			if got := server.Heard("evalsha")[i].Cmd[5]; got != strconv.Itoa(room) {
				t.Errorf("read %d has a room of %s, want %d", i, got, room)
			}
		}
	}
	tx, _ := readingTx(t, func(string) any { return []any{1, "a", "d", 65} })
	if _, err := get(t.Context(), tx, "{tag}1", "{tag}2"); err != nil {
		t.Errorf("two reads: %v", err)
	}
	if want := len("get{tag}1") + len("get{tag}2"); tx.guardBytes != want || tx.guardSize != 130 {
		t.Errorf("they have %d bytes and their replies %d, want %d and 130", tx.guardBytes, tx.guardSize, want)
	}
}

func TestReadOfAKeyThatMSetWritesIsRejectedWhateverItsValue(t *testing.T) {
	t.Parallel()
	for _, value := range []any{1, "1", 0} {
		tx, _ := readingTx(t, func(string) any { return []any{1, "a", "d", 65} })
		tx.Pipeline().MSet(t.Context(), "{tag}1", value, "{tag}2", "v")
		for _, key := range []string{"{tag}1", "{tag}2"} {
			if err := tx.Read().Get(t.Context(), key).Err(); !errors.Is(err, ErrReadAfterWrite) {
				t.Errorf("value %#v, key %s: %v", value, key, err)
			}
		}
	}
}

func TestKeyThatCommandsOnlyReadMayBeRead(t *testing.T) {
	t.Parallel()
	tx, _ := readingTx(t, func(string) any { return []any{1, "a", "d", 65} })
	tx.Pipeline().BitOpNot(t.Context(), "{tag}to", "{tag}from")
	if err := tx.Read().Get(t.Context(), "{tag}from").Err(); err != nil {
		t.Errorf("the source: %v", err)
	}
	if err := tx.Read().Get(t.Context(), "{tag}to").Err(); !errors.Is(err, ErrReadAfterWrite) {
		t.Errorf("the destination: %v", err)
	}
}

func TestReadsAreVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		again  any
		limit  int
		want   error
		prefix string
	}{
		"the same":     {again: []any{1, "a", "d", 65}, limit: 2},
		"another":      {again: []any{1, "b", "e", 65}, limit: 2, want: ErrConflict},
		"larger":       {again: []any{2}, limit: 2, want: ErrConflict},
		"too many":     {again: []any{1, "a", "d", 65}, limit: 1, want: ErrTooLarge},
		"unanswered":   {again: errors.New("ERR y"), limit: 2, prefix: "luatx: verify the guarded reads: "},
		"not readable": {again: "text", limit: 2, prefix: "luatx: verify the guarded reads: "},
	} {
		var answer any = []any{1, "a", "d", 65}
		tx, server := readingTx(t, func(string) any { return answer })
		if err := tx.verify(t.Context()); err != nil || len(server.Heard()) > 0 {
			t.Errorf("%s: no reads: %v", name, err)
		}
		if _, err := get(t.Context(), tx, "{tag}1", "{tag}2"); err != nil {
			t.Fatal(err)
		}
		answer, tx.t.cfg.MaxCommands = c.again, c.limit
		err := tx.verify(t.Context())
		if (err == nil) != (c.want == nil && c.prefix == "") || c.want != nil && !errors.Is(err, c.want) || err != nil && !strings.HasPrefix(err.Error(), c.prefix) {
			t.Errorf("%s: %v", name, err)
		}
		if !tx.mu.TryLock() {
			t.Errorf("%s: the transaction stays locked", name)
		}
	}
}

func TestSingleReadIsVerified(t *testing.T) {
	t.Parallel()
	digest := "d"
	tx, _ := readingTx(t, func(string) any { return []any{1, "a", digest, 65} })
	if _, err := get(t.Context(), tx, "{tag}1"); err != nil {
		t.Fatal(err)
	}
	digest = "e"
	if err := tx.verify(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("the error is %v", err)
	}
}

func TestKeysEscapeTheCharactersThatHaveAMeaning(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{": "%7B", "}": "%7D", ":": "%3A", "%": "%25", "\x00": "%00", "\x1f": "%1F", "\x7f": "%7F",
		"a b~": "a b~", "a b~{\x7f": "a b~%7B%7F", "{\u0080 |": "%7B\u0080 |", "\u0080": "\u0080", "\x1f\x1f!": "%1F%1F!",
	} {
		if got := escape(text); got != want {
			t.Errorf("%q is escaped as %q, want %q", text, got, want)
		}
	}
}

func TestRepliesThatCannotBeReadAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		out  commit.Outcome
		logs bool
	}{
		"a reply":       {commit.Outcome{State: commit.Committed, Replies: []any{int64(1)}}, false},
		"one too few":   {commit.Outcome{State: commit.Committed}, true},
		"kept ones":     {commit.Outcome{State: commit.Duplicate, Kept: "no replies"}, true},
		"none are kept": {commit.Outcome{State: commit.Duplicate}, false},
	} {
		var log strings.Builder
		tr := &Transactor{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, filler: record.NewFiller()}
		tr.fill([]redis.Cmder{redis.NewIntCmd(t.Context(), "incr", "k")}, &c.out)
		if strings.Contains(log.String(), "its replies could not be read") != c.logs {
			t.Errorf("%s: the log is %q", name, log.String())
		}
	}
}

func TestFunctionRunsAgainAfterAConflictUpToConflictRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for retries, want := range map[int]int{0: 1, 1: 2, 3: 4} {
			tr := unconnected(t)
			tr.cfg.ConflictRetries = retries
			tr.checked.Store(true)
			runs := 0
			conflicts := func(*Tx) error {
				runs++
				return ErrConflict
			}
			if _, err := tr.Transact(t.Context(), "a", conflicts); !errors.Is(err, ErrConflict) || runs != want {
				t.Errorf("Transact with %d retries: %d runs, want %d: %v", retries, runs, want, err)
			}
			runs = 0
			if got := tr.TransactBatch(t.Context(), []BatchItem{{Aggregate: "a", Func: conflicts}}); !errors.Is(got[0].Err, ErrConflict) || runs != want {
				t.Errorf("a batch with %d retries: %d runs, want %d: %v", retries, runs, want, got[0].Err)
			}
		}
	})
}

func TestLongestPauseAfterAConflictDoublesUpTo64Milliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &Transactor{cfg: Config{ConflictRetries: 9}}
		for n, milliseconds := range []int64{1, 2, 4, 8, 16, 32, 64, 64, 64} {
			most := time.UnixMilli(milliseconds).Sub(time.UnixMilli(0))
			var longest time.Duration
			for range 500 {
				began := time.Now()
				if again, err := tr.retries(t.Context(), n, ErrConflict); !again {
					t.Fatal(err)
				}
				longest = max(longest, time.Since(began))
			}
			if longest > most || longest < most/2 {
				t.Errorf("the longest pause after run %d is %v, want %v", n, longest, most)
			}
		}
	})
}

func TestGatheredTransactionsWaitTheirWholeLingerAfterAnEarlierCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scripted.New(func([]string) any { return errors.New("NOPERM no") })
		tr, err := New(server.Client(t), Config{Namespace: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		g := tr.gather(t.Context(), 2, 10*time.Second, nil).(*gathering)
		began := time.Now()
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() {
			time.Sleep(9 * time.Second)
			g.join(begun(tr))
			time.Sleep(3 * time.Second)
			g.join(begun(tr))
		})
		g.join(begun(tr))
		first := time.Since(began).Round(time.Second)
		g.join(begun(tr))
		second := time.Since(began).Round(time.Second)
		if first != 9*time.Second || second != 12*time.Second {
			t.Errorf("commits after %v and %v, want 9s and 12s", first, second)
		}
	})
}

func TestPlanThatCannotBeNotedIsLogged(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		var log strings.Builder
		server := scripted.New(func([]string) any {
			if fails {
				return errors.New("NOPERM no")
			}
			return 1
		})
		tr, err := New(server.Client(t), Config{
			Namespace: "shop", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatal(err)
		}
		tr.notePlan(shard.Plan{Alone: "1", Batch: "2", Does: "HSET", Hits: 7})
		if noted := len(server.Heard("hincrby")) == 2; noted == fails || strings.Contains(log.String(), "was not noted") != fails {
			t.Errorf("the server fails: %t, and the plan was noted: %t, and the log is %q", fails, noted, log.String())
		}
	}
}

func TestEnqueueOfNoEventsNeedsNoServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tr := unconnected(t)
	if n, err := tr.Enqueue(ctx, "a"); n != 0 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	for name, enqueue := range map[string]func() (int, error){
		"no aggregate": func() (int, error) { return tr.Enqueue(ctx, "") },
		"no id":        func() (int, error) { return tr.Enqueue(ctx, "a", Event{Body: []byte("{}")}) },
		"no server":    func() (int, error) { return tr.Enqueue(ctx, "a", Event{ID: "1", Body: []byte("{}")}) },
	} {
		if n, err := enqueue(); n != 0 || err == nil {
			t.Errorf("%s: %d events, %v", name, n, err)
		}
	}
}
