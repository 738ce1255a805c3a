package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
	"github.com/luatx/luatx/internal/test/redistest"
)

// quick returns the flags of a run with tiny measurements.
func quick(addr string, more ...string) []string {
	return append([]string{"bench", "--redis", addr, "--rounds", "1", "--per", "1ms", "--callers", "1,4", "--yes"}, more...)
}

func TestBenchComparesAllWaysAndLeavesNoKeys(t *testing.T) {
	t.Parallel()
	own := func(t testing.TB) *redistest.Server {
		t.Helper()
		return redistest.Single(t, redistest.Own())
	}
	onBoth(t, own, func(t *testing.T, client redis.UniversalClient, addr string) {
		before := len(dump(t, client, "luatx-bench-*").Keys)
		status, out, errs := run(t.Context(), "", quick(addr, "--json", "--tags", "3")...)
		if status != statusFine {
			t.Fatal(status, errs)
		}
		var got benchResult
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err, out)
		}
		if len(got.Cells) != 2 || got.Cells[1].Cell != "4 callers" || !slices.Equal(got.Cells[0].Ways, ways.Names()) || len(got.LeftOut) != 0 {
			t.Errorf("%d cells, left out %v", len(got.Cells), got.LeftOut)
		}
		for _, figure := range []string{
			"commit_c1_vs_three_step", "commit_c4_vs_three_step", "server_cpu_c4_vs_three_step", "server_cpu_c4_unbatched_vs_handwritten",
		} {
			if got.Figures[figure] <= 0 {
				t.Errorf("no %s in %v", figure, got.Figures)
			}
		}
		if after := dump(t, client, "luatx-bench-*").Keys; len(after) > before {
			t.Errorf("left: %v", after)
		}
	})
}

func TestBenchTableShowsMediansAndRatiosOfKnownNumbers(t *testing.T) {
	t.Parallel()
	sample := func(ops int) measure.Sample {
		return measure.Sample{Ops: ops, Took: time.Second, ServerCPU: 10 * time.Millisecond, ClientCPU: 2 * time.Second, P50: 1500 * time.Microsecond, P99: 3 * time.Millisecond}
	}
	result := benchResult{Figures: map[string]float64{}}
	result.add(64, measure.Table{Cell: "64 callers", Ways: []string{ways.ThreeStep, ways.Luatx}, Rounds: [][]measure.Sample{
		{sample(1000), sample(2000)}, {sample(1000), sample(4000)}, {sample(1000), sample(3000)},
	}})
	if got := result.Figures["commit_c64_vs_three_step"]; got != 3 {
		t.Error(got)
	}
	var out strings.Builder
	redistest.Must(t, result.write(&out, false))
	has(t, strings.Join(strings.Fields(out.String()), " "), "64 callers per second × server CPU ×",
		"pipeline mode 1000 1.00 (1.00–1.00) 1.00 10.00", "luatx 3000 3.00 (2.00–4.00) 0.33 3.33", "1.50 3.00")
}

func TestBenchWarnsOfOtherClientsAndCanBeInterrupted(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	client := server.Client(t)
	redistest.Must(t, client.Ping(t.Context()).Err())
	ctx, cancel := context.WithCancel(redistest.Soon(t))
	errs := &until{text: "interrupt to cancel", then: cancel}
	args := slices.DeleteFunc(quick(server.Addr()), func(arg string) bool { return arg == "--yes" })
	status := command(ctx, args, standard{strings.NewReader(""), &strings.Builder{}, errs})
	if status != statusInterrupted || !strings.Contains(errs.String(), "1 other clients use this server") {
		t.Errorf("status %d, %s", status, errs)
	}
	if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// until calls a function when a text has been written.
type until struct {
	strings.Builder
	text string
	then func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.Builder.Write(b)
	if strings.Contains(u.String(), u.text) {
		u.then()
	}
	return n, err
}

func TestBenchLeavesOutWaysThatTheServerDenies(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	admin := server.Admin(t)
	rules := []any{"ACL", "SETUSER", "some", "on", ">secret", "~*", "+@all", "-dump", "-watch", "-info"}
	if server.Binary().AtLeast(6, 2) { // before Redis 6.2, users have all channels
		rules = append(rules, "&*")
	}
	redistest.Must(t, admin.Do(t.Context(), rules...).Err())
	status, out, errs := run(redistest.Soon(t), "", quick("redis://some:secret@"+server.Addr(), "--json")...)
	var got benchResult
	if err := json.Unmarshal([]byte(out), &got); status != statusFine || err != nil {
		t.Fatal(status, err, errs)
	}
	if len(got.LeftOut) != 2 || got.LeftOut[ways.DumpUndo] == "" || !strings.Contains(got.LeftOut[ways.Watch], "NOPERM") {
		t.Errorf("left out: %v", got.LeftOut)
	}
	if !strings.Contains(errs, "cannot measure the CPU time of the server") || !strings.Contains(errs, "cannot determine whether other clients use the server") || got.Figures["server_cpu_c1_vs_three_step"] != 0 {
		t.Errorf("%s\n%v", errs, got.Figures)
	}
	if left, err := admin.DBSize(t.Context()).Result(); err != nil || left != 0 {
		t.Errorf("%d keys are left, %v", left, err)
	}
}
