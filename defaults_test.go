package luatx

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/documented"
)

func TestConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
}

func TestConfigRejectsValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, Config{Namespace: "shop"}, func(c Config) error { return c.withDefaults().validate() })
}

func TestWaitForReplicasIsOneSecondAndForDisksThree(t *testing.T) {
	t.Parallel()
	for want, d := range map[time.Duration]Durability{
		0:                      {},
		time.Second:            {Replicas: 1},
		3 * time.Second:        {Replicas: 1, Fsync: true},
		500 * time.Millisecond: {Replicas: 1, Timeout: 500 * time.Millisecond},
	} {
		if got := d.withDefaults().Timeout; got != want {
			t.Errorf("%+v waits for %v, want %v", d, got, want)
		}
	}
}

func TestRetentionIsAtLeastTenTimesTheCommitTimeout(t *testing.T) {
	t.Parallel()
	for retention, allowed := range map[time.Duration]bool{10 * time.Second: true, 10*time.Second - 1: false} {
		if err := (Config{Namespace: "n", CommitTimeout: time.Second, Retention: retention}).withDefaults().validate(); (err == nil) != allowed {
			t.Errorf("a retention of %v: %v, want it allowed: %t", retention, err, allowed)
		}
	}
}

type marshaled struct {
	text string
	err  error
}

func (m marshaled) MarshalBinary() ([]byte, error) { return []byte(m.text), m.err }

func TestLimitsOfATransactionAreExact(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, c := range map[string]struct {
		record      func(tx *Tx)
		count, size int
	}{
		"text":         {func(tx *Tx) { tx.Pipeline().Set(ctx, "{tag}k", "value", 0) }, 1, len("set" + "{tag}k" + "value")},
		"bytes":        {func(tx *Tx) { tx.Pipeline().Set(ctx, "{tag}k", []byte("value"), 0) }, 1, len("set" + "{tag}k" + "value")},
		"two numbers":  {func(tx *Tx) { tx.Pipeline().SetRange(ctx, "{tag}k", 7, ""); tx.Pipeline().IncrBy(ctx, "{tag}n", 7) }, 2, len("setrange"+"{tag}k"+"incrby"+"{tag}n") + 2*8},
		"its own form": {func(tx *Tx) { tx.Pipeline().Set(ctx, "{tag}k", marshaled{text: "value"}, 0) }, 1, len("set" + "{tag}k" + "value")},
		"an event":     {func(tx *Tx) { tx.commit.Events = []shard.Event{{ID: "1", Body: []byte("{}")}} }, 1, len("1" + "{}")},
		"a read":       {func(tx *Tx) { tx.guards, tx.guardBytes = make([]commit.Guard, 1), 9 }, 1, 9},
		"all": {func(tx *Tx) {
			tx.Pipeline().Incr(ctx, "{tag}k")
			tx.commit.Events = []shard.Event{{ID: "1", Body: []byte("{}")}, {ID: "22"}}
			tx.guards, tx.guardBytes = make([]commit.Guard, 3), 9
		}, 6, len("incr"+"{tag}k"+"1"+"{}"+"22") + 9},
	} {
		for limits, want := range map[[2]int]error{{c.count, c.size}: nil, {c.count - 1, c.size}: ErrTooLarge, {c.count, c.size - 1}: ErrTooLarge} {
			tr := unconnected(t)
			tr.cfg.MaxCommands, tr.cfg.MaxBytes = limits[0], limits[1]
			tx := begun(tr)
			c.record(tx)
			if err := tx.assemble(); !errors.Is(err, want) {
				t.Errorf("%s: with at most %d of %d bytes: %v, want %v", name, limits[0], limits[1], err, want)
			}
			if !tx.mu.TryLock() {
				t.Errorf("%s: the transaction stays locked", name)
			}
		}
	}
}

func TestArgumentsThatChangeAfterTheyWereRecordedAreCheckedAgain(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(args []any){
		"luatx.nonsense":               func(args []any) { args[0] = "luatx.nonsense" },
		"number of the following keys": func(args []any) { args[2] = "many" },
		"argument 3":                   func(args []any) { args[3] = struct{}{} },
		"no form":                      func(args []any) { args[3] = marshaled{err: errors.New("no form")} },
	} {
		tx := begun(unconnected(t))
		cmd := tx.Pipeline().Do(t.Context(), "zunionstore", "{tag}to", 1, "{tag}from")
		change(cmd.Args())
		if err := tx.assemble(); !errors.Is(err, ErrCommandRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}

func TestCommitDeclaresEachKeyOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 15, 16, 17, 40} {
		tx := begun(unconnected(t))
		var want []string
		for i := range n {
			want = append(want, "{tag}"+strconv.Itoa(i))
		}
		for range 2 {
			for _, key := range want {
				tx.Pipeline().Incr(t.Context(), key)
			}
		}
		tx.Pipeline().RPopLPush(t.Context(), "{tag}from", want[0])
		tx.guardKeys = []string{want[n-1], "{tag}read", "{tag}read"}
		want = append(want, "{tag}from", "{tag}read")
		if err := tx.assemble(); err != nil || !slices.Equal(tx.commit.Keys, want) || len(tx.commit.Commands) != 2*n+1 {
			t.Errorf("%d keys: %q of %d commands, %v, want %q", n, tx.commit.Keys, len(tx.commit.Commands), err, want)
		}
	}
}
