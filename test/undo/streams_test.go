package undo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

// large creates a stream, K, that is larger than the limit of an undo, and a list, K:list.
const large = "XADD K 1-1 f xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx;" +
	"RPUSH K:list xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx y"

func TestXAddToALargeStreamMayStandAnywhereAndRepliesStayWithTheirCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commands string
		replies  []string // "" for any
		failed   int      // the index of the failing command, or -1
		says     string
	}{
		"last":                 {"SET K:a 1;XADD K * f v", []string{"OK", ""}, -1, ""},
		"first":                {"XADD K * f v;SET K:a 1;INCR K:a", []string{"", "OK", "2"}, -1, ""},
		"many":                 {"XADD K * f v;SET K:a 1;XADD K:2 MAXLEN ~ 100 * f v;GET K:a;XADD K * f w", []string{"", "OK", "", "1", ""}, -1, ""},
		"counted behind":       {"XADD K * f v;XLEN K;SET K:a 1", []string{"", "2", "OK"}, 0, "more than 50 bytes"},
		"not plain":            {"XADD K NOMKSTREAM * f v;SET K:a 1", nil, 0, "more than 50 bytes"},
		"a later one fails":    {"XADD K * f v;SET K:a 1;LPUSH K:a x;XADD K * f w", nil, 2, "WRONGTYPE"},
		"no stream":            {"SET K:a 1;XADD K * f v;XADD K:list * f v;SET K:b 1", nil, 2, "WRONGTYPE"},
		"no third stream":      {"SET K:a 1;XADD K * f v;XADD K:2 * f v;XADD K:list * f v", nil, 3, "WRONGTYPE"},
		"behind a long entry":  {"SET K:a 1;XADD K * " + strings.Repeat(" f v", 130) + ";XADD K:list * f v;SET K:b 1", nil, 2, "WRONGTYPE"},
		"a list last but one":  {"SET K:a 1;XADD K * f v;LPOP K:list", []string{"OK", "", ""}, -1, ""},
		"a list last":          {"SET K:a 1;LPOP K:list", []string{"OK", ""}, -1, ""},
		"two lists":            {"LPOP K:list;XADD K * f v;LPOP K:list", nil, 0, "more than 50 bytes"},
		"a list and no stream": {"LPOP K:list;XADD K:string * f v", nil, 0, "more than 50 bytes"},
		"a list and no second": {"LPOP K:list;XADD K * f v;XADD K:string * f v", nil, 0, "more than 50 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Shared(t).Client(t)
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 50 })
			k := rig.Key(t, tr, "a", "k")
			rig.Run(t, client, k, large+";SET K:string v")
			before := rig.Dump(t, client, tr)
			cmds, err := rig.Transact(t, tr, k, c.commands)
			if c.failed >= 0 {
				var failed *luatx.CommandError
				if !errors.As(err, &failed) || failed.Index != c.failed || !strings.Contains(failed.Text, c.says) {
					t.Errorf("error %v", err)
				}
				rig.NoTrace(t, client, tr, before)
				return
			}
			redistest.Must(t, err)
			for i, cmd := range cmds {
				got, err := cmd.(*redis.Cmd).Text()
				if n, isInt := cmd.(*redis.Cmd).Val().(int64); isInt {
					got, err = "", nil
					if n == 2 {
						got = "2"
					}
				}
				if err != nil || c.replies[i] != "" && got != c.replies[i] || c.replies[i] == "" && got == "OK" {
					t.Errorf("%v: %q, %v", cmd, got, err)
				}
			}
		})
	}
}

// TestXAddAtTheEndIsUndone makes one of the XADDs fail, which is only possible with an ACL on single keys. The entries before
// it are removed. If MAXLEN has trimmed entries, the error is a RollbackError.
func TestXAddAtTheEndIsUndone(t *testing.T) {
	t.Parallel()
	client, admin := rig.NewUser(t, "+@all")
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "-xadd", "(+xadd ~*:open* ~*:void)").Err(); err != nil {
		t.Skip("the server knows no selectors: ", err)
	}
	for name, c := range map[string]struct{ setup, commands, left string }{
		"existing": {"XADD K:open 1-1 f v", "SET K:a 1;XADD K:open * f v;XADD K:shut * f v", ""},
		"new":      {"", "SET K:a 1;XADD K:open * f v;XADD K:open * f w;XADD K:shut * f v", ""},
		"empty":    {"XGROUP CREATE K:open g $ MKSTREAM", "SET K:a 1;XADD K:open * f v;XADD K:shut * f v", ""},
		"trimmed":  {"XADD K:open 1-1 f v;XADD K:open 1-2 f v", "SET K:a 1;XADD K:open MAXLEN 1 * f v;XADD K:shut * f v", "MAXLEN"},
		"no id is left": {
			large + ";XADD K:open 18446744073709551615-18446744073709551615 f v", "LPOP K:list;XADD K:open * f v", "LPOP K:list: cannot",
		},
		"no id is left, and keys stand anywhere": {
			large + ";XADD K:open 18446744073709551615-18446744073709551615 f v", "LMPOP 1 K:list LEFT;XADD K:open * f v", "LMPOP 1: cannot",
		},
		"the last": {"", "SET K:a 1;XADD K:shut * f v", ""},
		"one in the middle": {
			"XADD K:open 1-1 f v;XADD K:shut 1-1 f v", "SET K:a 1;XADD K:open * f v;XADD K:shut * f v;XADD K:open * f w", "",
		},
		"unsure": {large, "LPOP K:list;XADD K:open * f v;XADD K:shut * f v", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.UndoBytes = 50 })
			k := rig.Key(t, tr, "a", "k")
			rig.Run(t, admin, k, c.setup)
			before := rig.Dump(t, admin, tr)
			_, err := rig.Transact(t, tr, k, c.commands)
			if c.left != "" {
				var broken *luatx.RollbackError
				if !errors.As(err, &broken) || !strings.Contains(broken.Text, strings.ReplaceAll(c.left, "K:", k+":")) {
					t.Errorf("error %v", err)
				}
				return
			}
			if _, ok := errors.AsType[*luatx.CommandError](err); !ok {
				t.Errorf("error %v", err)
			}
			if diff := redistest.Diff(withoutCounters(before), withoutCounters(rig.Dump(t, admin, tr))); diff != "" {
				t.Errorf("left a trace:\n%s", diff)
			}
		})
	}
}

// withoutCounters removes values that XDEL does not restore: the last id of a stream and its counters.
func withoutCounters(state redistest.State) redistest.State {
	for name, entry := range state.Keys {
		entry.Value = slices.DeleteFunc(entry.Value, func(line string) bool { return strings.HasPrefix(line, "last-generated-id") })
		state.Keys[name] = entry
	}
	return state
}
