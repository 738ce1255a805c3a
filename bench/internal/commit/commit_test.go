package commit

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/measure/ways"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // about connections to stopped servers
	redistest.Main(m)
}

func TestShortRunHasTheFiguresOfItsCells(t *testing.T) { // not parallel: all allocations of the process count
	redistest.Need(t)
	env := suite.Env{Short: true, Rounds: 1, Per: time.Millisecond, Wanted: func(string) bool { return true }, Log: t.Logf}
	report, err := Group().Run(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if strings.HasPrefix(f.cell, "payload") {
			continue // only a full run varies the payload
		}
		if report.Figures[f.name].Median <= 0 {
			t.Errorf("%s is %v", f.name, report.Figures[f.name])
		}
	}
	if allocs := report.Figures["allocs_over_goredis"].Median; allocs <= 0 || allocs > 20 {
		t.Errorf("%v allocations", allocs)
	}
	text := report.Markdown("here")
	for _, want := range []string{"`commit_c64_vs_three_step`", "| handwritten script |", "callers 64", "3 masters |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestFullRunMeasuresEachDeployment(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	wanted := []string{"masters 3, tags 16", "payload 10000", "AOF everysec"}
	env := suite.Env{Rounds: 1, Per: time.Millisecond, Wanted: func(cell string) bool { return slices.Contains(wanted, cell) }, Log: t.Logf}
	report, err := Group().Run(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Measured) != len(wanted) || len(report.Grids) != len(wanted) || len(report.Figures) != 2 {
		t.Errorf("%d tables, %d grids, figures %v", len(report.Measured), len(report.Grids), report.Figures)
	}
}

func TestCellsHaveUniqueNamesAndTheBaseOfTheRatios(t *testing.T) {
	t.Parallel()
	cells := map[string]cell{}
	for _, a := range axes() {
		for _, c := range a.cells {
			if _, twice := cells[c.Name]; twice && c.Name != "base" {
				t.Errorf("%s is there twice", c.Name)
			}
			cells[c.Name] = c
			if c.ways[0] != ways.ThreeStep {
				t.Errorf("%s lacks the base of the ratios", c.Name)
			}
		}
	}
	for _, f := range figures {
		c, ok := cells[f.cell]
		if f.cell != spread && (!ok || !slices.Contains(c.ways, f.way) || !slices.Contains(c.ways, f.base)) {
			t.Errorf("%s is not measured", f.name)
		}
	}
	if b := base(); !slices.Equal(b.ways, ways.Names()) || b.Callers != 64 || b.Payload != 300 {
		t.Errorf("the base is %+v", b)
	}
}

func TestReplyIsDelayedByTheRoundTripAndTheDataAfterItIsNot(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		defer func() { _ = server.Close() }()
		buf := make([]byte, 4)
		for {
			if _, err := server.Read(buf); err != nil {
				return
			}
			for range 2 {
				if _, err := server.Write([]byte("pong")); err != nil {
					return
				}
			}
		}
	}()
	const by = 20 * time.Millisecond
	conn := &distant{Conn: client, by: by}
	for range 3 {
		start, buf := time.Now(), make([]byte, 4)
		if _, err := conn.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil || time.Since(start) < by {
			t.Fatalf("the reply came after %v, %v", time.Since(start), err)
		}
		if conn.asked {
			t.Error("the rest of the reply would take as long again")
		}
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.SyscallConn(); err == nil {
		t.Error("a pipe has no descriptor")
	}
}

func TestNoCellLeavesKeysForTheNext(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	servers := &servers{}
	ctx := context.Background()
	t.Cleanup(func() {
		if err := servers.close(); err != nil {
			t.Error(err)
		}
	})
	c := base()
	c.ways, c.Callers = fewWays, 2
	if _, err := c.measure(ctx, suite.Env{Rounds: 1, Per: time.Millisecond}, servers); err != nil {
		t.Fatal(err)
	}
	d, err := servers.get(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	client := d.client(1, 0)
	t.Cleanup(func() { _ = client.Close() })
	if n, err := client.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
	if _, err := measure.ServerCPU(client)(ctx); err != nil {
		t.Error(err)
	}
}
