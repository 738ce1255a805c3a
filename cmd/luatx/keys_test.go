package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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
		has(t, out, "renamed 79", "do not fit the map 1", "new name is taken 1",
			fmt.Sprintf(`new name is taken: "%s:7:balance" → "%s:{7}:balance"`, lead, lead), fmt.Sprintf(`do not fit the map: "%s:odd"`, lead))
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
