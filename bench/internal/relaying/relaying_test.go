package relaying

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/luatx/luatx/bench/internal/suite"
	"github.com/luatx/luatx/internal/test/measure"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	if was, err := Child(context.Background()); was { // TestLatencyMeasuresEveryLineup starts this program again
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}

func newTestBed(t *testing.T) *bed {
	t.Helper()
	redistest.Need(t)
	b, err := newBed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func tiny(t *testing.T) suite.Env {
	return suite.Env{Short: true, Rounds: 1, Pending: 100_000, Per: time.Millisecond, Wanted: func(string) bool { return true }, Log: t.Logf}
}

func TestDrainPublishesEachEventOnceInEveryWay(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	table, err := measure.Interleave(t.Context(), measure.Cell{Name: "drain", Ops: 1234}, drainers(b), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range table.Ways {
		if speed, err := table.Ratio(way, streamLoop, measure.Throughput); err != nil || speed.Median <= 0 {
			t.Errorf("%s: %v, %v", way, speed, err)
		}
	}
}

func TestDrainFailsIfEventsAreLeft(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	for _, d := range []struct {
		name  string
		drain func(context.Context, int) error
		want  string
	}{
		{"lazy", func(context.Context, int) error { return nil }, "10 events were not published"},
		{"sound", loop{client: b.client, count: 3}.drain, ""},
	} {
		lazy := way(d.name, b, func() (drainer, error) {
			l := loop{client: b.client}
			return drainer{l.fill, d.drain, l.left}, nil
		})
		running, err := lazy.Setup(t.Context(), measure.Cell{})
		if err != nil {
			t.Fatal(err)
		}
		if err := running.Prepare(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(running.Round(t.Context(), 10)); !strings.Contains(got, d.want) || (d.want == "") != (got == "<nil>") {
			t.Errorf("%s: %s, want %q", d.name, got, d.want)
		}
	}
}

// TestLatencyMeasuresEveryLineup includes one with a second process.
func TestLatencyMeasuresEveryLineup(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	for _, l := range lineups() {
		got, err := l.measure(t.Context(), b, few, 50*time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		if len(got.publish) != 10 || got.commit[0] <= 0 || got.publish[9] > 5*time.Second {
			t.Errorf("%s: commits took %v, publishing %v", l.name, got.commit, got.publish)
		}
	}
}

// TestOnlyTheFirstPublishOfAnEventCounts also checks that a publish before the reply took no time.
func TestOnlyTheFirstPublishOfAnEventCounts(t *testing.T) {
	t.Parallel()
	times := newTimes(3)
	for i := range 3 {
		times.trips[i] = time.Duration(3 - i)
		times.replies[i].Store(100)
	}
	times.published(7, 1)
	times.published(-1, 1)
	times.published(0, 90)
	times.published(2, 150)
	times.published(2, 999)
	select {
	case <-times.all:
		t.Fatal("an event is missing")
	default:
	}
	times.published(1, 120)
	if err := times.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := times.reading()
	if fmt.Sprint(got.publish) != "[0s 20ns 50ns]" || fmt.Sprint(got.commit) != "[1ns 2ns 3ns]" {
		t.Errorf("%v %v", got.publish, got.commit)
	}
	if p := quantile(got.publish, .5); p != 20 {
		t.Errorf("the median is %v", p)
	}
	if p := quantile(got.publish, 1); p != 50 {
		t.Errorf("the highest is %v", p)
	}
}

func TestIDOfAnEventContainsItsNumber(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 1, 4711} {
		e, err := event(i)
		if err != nil || numberOf(e.ID) != i || len(e.ID) != inboxNames {
			t.Errorf("%d became %s, %v", i, e.ID, err)
		}
		if len(e.Body) < 280 || len(e.Body) > 320 {
			t.Errorf("an event has %d bytes", len(e.Body))
		}
	}
	if numberOf("other") >= 0 {
		t.Error("a foreign id has a number")
	}
}

func TestSweepUsesSomeButLittleCPUTime(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	var report suite.Report
	report.Figures = map[string]measure.Spread{}
	if err := sweep(t.Context(), tiny(t), b, &report); err != nil {
		t.Fatal(err)
	}
	if got := report.Figures["sweep_core_percent"].Median; got <= 0 || got > 5 {
		t.Errorf("%v %% of a core", got)
	}
}

func TestIDInTheInboxNeedsLessMemoryThanAKey(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	const n = 20_000
	own, err := b.memory(t.Context(), n, fillInbox)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := b.memory(t.Context(), n, fillKeys)
	if err != nil {
		t.Fatal(err)
	}
	if own < 40 || own > 120 || keys <= own {
		t.Errorf("%v bytes an id, a key each %v", own, keys)
	}
	if n, err := b.client.DBSize(t.Context()).Result(); err != nil || n != 20_000+inboxAtOnce {
		t.Errorf("%d keys, %v", n, err)
	}
}

func TestBacklogsKeepTheirSizes(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	l, err := newBacklog(t.Context(), b, 5000)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []func(*backlog) *measure.Running{(*backlog).commits, (*backlog).claims, (*backlog).settles} {
		table, err := measure.Interleave(t.Context(), measure.Cell{Ops: 500}, []measure.Way{{Name: "w", Setup: func(context.Context, measure.Cell) (*measure.Running, error) {
			return way(l), nil
		}}}, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if s := table.Rounds[0][0]; s.Ops != 500 || s.ServerCPU <= 0 {
			t.Errorf("%+v", s)
		}
	}
	if left, err := pending(t.Context(), l.tr); err != nil || left < 4500 || left > 6500 || len(l.held) > 0 {
		t.Errorf("%d are pending, %d claims held, %v", left, len(l.held), err)
	}
}
