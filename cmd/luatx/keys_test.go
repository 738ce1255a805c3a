package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// accounts writes the keys of a service that knows no tags, and returns their common beginning.
func accounts(t *testing.T, client redis.UniversalClient, n int) string {
	t.Helper()
	lead := redistest.Tag(t)
	for i := range n {
		key := fmt.Sprint(lead, ":", i, ":")
		if err := client.Set(t.Context(), key+"balance", i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(t.Context(), key+"profile", "name", i).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return lead
}

// TestKeysRename walks through what an operator does: a dry run, which is the default, the run, and the same again; with
// a key that does not fit and a name that is taken.
func TestKeysRename(t *testing.T) {
	t.Parallel()
	walk := func(t *testing.T, client redis.UniversalClient, addr string) {
		lead := accounts(t, client, 40)
		args := []string{
			"keys", "rename", "--redis", addr, "--pattern", lead + ":*", "--map", lead + ":{id}:{part}",
			"--keyspace", "own", "--prefix", lead,
		}
		rename := func(want int, more ...string) string {
			t.Helper()
			status, out, errs := run(redistest.Soon(t), "", append(slices.Clip(args), more...)...)
			if status != want || errs != "" {
				t.Errorf("%v: status %d, want %d\n%s%s", more, status, want, out, errs)
			}
			return out
		}
		has := func(out string, wants ...string) {
			t.Helper()
			for _, want := range wants {
				if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
					t.Errorf("the report lacks %q:\n%s", want, out)
				}
			}
		}

		for _, more := range [][]string{nil, {"--dry-run"}} {
			out := rename(statusFine, more...)
			has(out, "nothing was changed", "to rename 80", "to rename: and 77 more", fmt.Sprintf(`" → "%s:{`, lead), "of these, to another slot")
		}
		if client.Exists(t.Context(), lead+":7:balance").Val() != 1 {
			t.Fatal("the dry run has renamed")
		}

		client.Set(t.Context(), lead+":odd", 1, 0)
		client.Set(t.Context(), lead+":{7}:balance", "another's", 0)
		out := rename(statusInexact, "--apply")
		has(out, "renamed 79", "do not fit the map 1", "new name is taken 1",
			fmt.Sprintf(`new name is taken: "%s:7:balance" → "%s:{7}:balance"`, lead, lead), fmt.Sprintf(`do not fit the map: "%s:odd"`, lead))
		if got := client.Get(t.Context(), lead+":{8}:balance").Val(); got != "8" {
			t.Errorf("account 8 has %q", got)
		}

		client.Del(t.Context(), lead+":odd")
		client.Del(t.Context(), lead+":{7}:balance")
		has(rename(statusFine, "--apply"), "renamed 1", "named right 79")
		has(rename(statusFine, "--apply"), "renamed 0", "named right 80")
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Shared(t)
		walk(t, server.Client(t), server.Addr())
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.SharedCluster(t)
		walk(t, cluster.Client(t), strings.Join(cluster.Addrs(), ","))
	})
}

// TestKeysUsage holds what is said of flags that are wrong or missing, with status 2.
func TestKeysUsage(t *testing.T) {
	t.Parallel()
	fine := "keys rename --redis 127.0.0.1:1 --pattern a:* --map a:{id} --keyspace own"
	for _, c := range []struct{ args, says string }{
		{"keys", "luatx keys rename"},
		{"keys remove", "luatx keys rename"},
		{"keys rename", "is missing"},
		{fine, "--redis: "},
		{fine + " more", `unexpected argument "more"`},
		{fine + " --dry-run --apply", "say one of them"},
		{fine + " --nonsense", "-h lists the flags"},
		{fine + " --map a", "--map \"a\": there is no {id}"},
		{fine + " --parts {x}", "--parts: {x} is not in the map"},
		{fine + " --keyspace 16", `--keyspace "16": say own`},
		{fine + " --keyspace partitions=0", "1 to 16384"},
		{fine + " --prefix a{b", "holds a brace"},
		{"keys rename --pattern a:* --map a:{id} --keyspace own", "--redis is missing"},
	} {
		status, out, errs := run(context.Background(), "", strings.Fields(c.args)...)
		if status != statusUsage || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d\n%s%s", c.args, status, out, errs)
		}
	}
	for _, args := range []string{"keys -h", "keys rename -h", "keys help"} {
		status, out, errs := run(context.Background(), "", strings.Fields(args)...)
		if status != statusFine || errs != "" || !strings.Contains(out, "--pattern 'account:*'") || !strings.Contains(out, "-apply") {
			t.Errorf("%s: status %d\n%s%s", args, status, out, errs)
		}
	}
}
