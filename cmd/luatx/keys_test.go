package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
)

// accounts writes the keys of a service without tags, and returns their common prefix.
func accounts(t *testing.T, client redis.UniversalClient, n int) string {
	t.Helper()
	lead := redistest.Tag(t)
	for i := range n {
		key := fmt.Sprint(lead, ":", i, ":")
		redistest.Must(t, client.Set(t.Context(), key+"balance", i, 0).Err())
		redistest.Must(t, client.HSet(t.Context(), key+"profile", "name", i).Err())
	}
	return lead
}

func TestKeysRenamePreviewsRenamesAndReportsKeysThatDoNotFit(t *testing.T) {
	t.Parallel()
	onBoth(t, redistest.Shared, func(t *testing.T, client redis.UniversalClient, addr string) {
		lead := accounts(t, client, 40)
		args := []string{
			"keys", "rename", "--redis", addr, "--pattern", lead + ":*", "--map", lead + ":{id}:{part}",
			"--keyspace", "own", "--prefix", lead,
		}
		rename := func(want int, more ...string) string {
			t.Helper()
			status, out, errs := run(redistest.Soon(t), "", append(slices.Clip(args), more...)...)
			if status != want || (errs != "") != (want == statusUsage) {
				t.Errorf("%v: status %d, want %d\n%s%s", more, status, want, out, errs)
			}
			return strings.Join(strings.Fields(out), " ")
		}

		for _, c := range []struct {
			want int
			more []string
		}{{statusUsage, nil}, {statusFine, []string{"--dry-run"}}} {
			out := rename(c.want, c.more...)
			has(t, out, "Nothing was changed", "to rename 80", "to rename: 77 more", fmt.Sprintf(`" → "%s:{`, lead), "of these, to another slot")
		}
		if client.Exists(t.Context(), lead+":7:balance").Val() != 1 {
			t.Fatal("the dry run has renamed")
		}

		client.Set(t.Context(), lead+":odd", 1, 0)
		client.Set(t.Context(), lead+":{7}:balance", "another's", 0)
		out := rename(statusInexact, "--yes")
		has(t, out, "renamed 79", "do not match 1", "new name is taken 1",
			fmt.Sprintf(`new name is taken: "%s:7:balance" → "%s:{7}:balance"`, lead, lead), fmt.Sprintf(`do not match: "%s:odd"`, lead))
		if got := client.Get(t.Context(), lead+":{8}:balance").Val(); got != "8" {
			t.Errorf("account 8 has %q", got)
		}

		client.Del(t.Context(), lead+":odd")
		client.Del(t.Context(), lead+":{7}:balance")
		// The scan may return the renamed key again under its new name, so 79 or 80 keys are named right.
		has(t, rename(statusFine, "--yes"), "renamed 1", "named right")
		has(t, rename(statusFine, "--yes"), "renamed 0", "named right 80")
	})
}

// orderKey returns the key of an order. Its id has a character that a Keyspace escapes.
func orderKey(t *testing.T, keyspace luatx.Keyspace, i int) string {
	t.Helper()
	key, err := keyspace.Key(fmt.Sprint("order:", i), "lines")
	redistest.Must(t, err)
	return key
}

func TestKeysRenameFromAnotherKeyspaceTakesOneRun(t *testing.T) {
	t.Parallel()
	onBoth(t, redistest.Shared, func(t *testing.T, client redis.UniversalClient, addr string) {
		prefix := redistest.Tag(t)
		for i := range 40 {
			redistest.Must(t, client.Set(t.Context(), orderKey(t, luatx.Partitions(16).WithPrefix(prefix), i), i, 0).Err())
		}
		for _, c := range []struct {
			from, to string
			keyspace luatx.Keyspace
		}{
			{"partitions=16", "own", luatx.OwnTags()},
			{"own", "partitions=32", luatx.Partitions(32)},
			{"partitions=32", "partitions=16", luatx.Partitions(16)},
		} {
			args := []string{
				"keys", "rename", "--redis", addr, "--pattern", prefix + ":{*}*", "--from", c.from, "--from-prefix", prefix,
				"--keyspace", c.to, "--prefix", prefix, "--yes",
			}
			for again, want := range []string{"renamed 40", "renamed 0"} {
				status, out, errs := run(redistest.Soon(t), "", args...)
				if status != statusFine || errs != "" {
					t.Errorf("%s to %s, run %d: status %d\n%s%s", c.from, c.to, again+1, status, out, errs)
				}
				has(t, strings.Join(strings.Fields(out), " "), want)
			}
			for i := range 40 {
				if got := client.Get(t.Context(), orderKey(t, c.keyspace.WithPrefix(prefix), i)).Val(); got != fmt.Sprint(i) {
					t.Errorf("%s to %s: order %d has %q", c.from, c.to, i, got)
				}
			}
		}
	})
}

func TestKeysRenameWithAMapMovesKeysOfAPartitionToOwnTags(t *testing.T) {
	t.Parallel()
	onBoth(t, redistest.Shared, func(t *testing.T, client redis.UniversalClient, addr string) {
		id := redistest.Tag(t)
		escaped := "{pt6}:" + id + "%3A18:lines"
		redistest.Must(t, client.Set(t.Context(), "{pt6}:"+id+":lines", 17, 0).Err())
		redistest.Must(t, client.Set(t.Context(), escaped, 18, 0).Err())
		status, out, errs := run(redistest.Soon(t), "", "keys", "rename", "--redis", addr, "--pattern", "{pt6}:"+id+"*",
			"--map", "{{pt6}}:{id}:{part}", "--keyspace", "own", "--yes")
		if status != statusInexact {
			t.Errorf("status %d: %s", status, errs)
		}
		has(t, strings.Join(strings.Fields(out), " "), "renamed 1", "do not match 1", escaped+`": contains an escape`)
		if got := client.Get(t.Context(), "{"+id+"}:lines").Val(); got != "17" {
			t.Errorf("the new key has %q", got)
		}
		if got := client.Get(t.Context(), escaped).Val(); got != "18" {
			t.Errorf("the key with an escape has %q", got)
		}
	})
}
