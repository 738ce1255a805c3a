package history_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newHistory returns the history of a namespace with two shards.
func newHistory(t testing.TB, client redis.UniversalClient, namespace string) *history.History {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	return history.New(history.Config{
		Client: client, Namespace: namespace, Slots: func() []int { return []int{1, 2} }, Logger: log,
		Limits:  history.Limits{Events: 10, Bytes: 1000, Parked: 10},
		Scripts: shard.New(eval.New(client, namespace, log), shard.Constants{Namespace: namespace, Capacity: 10}),
	})
}

// sums returns the sums over a history at a resolution.
func sums(t testing.TB, h *history.History, r history.Resolution) (sum history.Bucket) {
	t.Helper()
	ctx := redistest.Soon(t)
	now, err := h.Now(ctx)
	redistest.Must(t, err)
	all, err := h.Read(ctx, r, now.Add(-r.Keep), now)
	redistest.Must(t, err)
	sum.Destinations, sum.Classes = map[string]history.Outcomes{}, map[string]int64{}
	for _, b := range all {
		for name, o := range b.Destinations {
			total := sum.Destinations[name]
			total.Add(o)
			sum.Destinations[name] = total
		}
		for class, n := range b.Classes {
			sum.Classes[class] += n
		}
		sum.Others.Add(b.Others)
		sum.OtherClasses += b.OtherClasses
		if b.Gauges != nil {
			sum.Gauges = b.Gauges
		}
	}
	return sum
}

func TestWritersOfSeveralProcessesAddUpInBothResolutions(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, namespace := redistest.Soon(t), redistest.Namespace(t)
		for i := range 3 {
			var c history.Counter
			for range 10 * (i + 1) {
				c.Add("bank", settle.Sent, "")
			}
			c.Add("bank", settle.Retry, "http_503")
			c.Add("mail", settle.GiveBack, "")
			c.Add("mail", settle.GiveBack, "network")
			c.Add("mail", settle.Park, "")
			c.Add("", settle.Hold, "")
			newHistory(t, client, namespace).End(ctx, &c)
		}
		for _, r := range []history.Resolution{history.Fine(), history.Coarse()} {
			got := sums(t, newHistory(t, client, namespace), r) // as another process reads it
			want := map[string]history.Outcomes{"bank": {Sent: 60, Failed: 3}, "mail": {Returned: 6, Parked: 3}}
			if !maps.Equal(got.Destinations, want) || got.Others != (history.Outcomes{}) || got.OtherClasses != 0 {
				t.Errorf("%v: %+v", r, got)
			}
			if want := map[string]int64{"http_503": 3, "network": 3, "exhausted": 3}; !maps.Equal(got.Classes, want) {
				t.Errorf("%v: classes %v", r, got.Classes)
			}
		}
	})
}

func TestEndWithoutCountsWritesNothing(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	h := newHistory(t, client, "shop")
	h.End(t.Context(), new(history.Counter))
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("written: %v", keys)
	}
}

func TestOneProcessMeasuresForAll(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, namespace := redistest.Soon(t), redistest.Namespace(t)
		turns := 0
		for range 5 {
			turn, err := newHistory(t, client, namespace).Write(ctx, time.Hour)
			redistest.Must(t, err)
			if turn {
				turns++
			}
		}
		if turns != 1 {
			t.Errorf("%d of 5 processes measure", turns)
		}
		h := newHistory(t, client, namespace)
		redistest.Must(t, client.HSet(ctx, h.Keys()[1], "sampled", time.Now().Add(time.Hour).UnixMilli()).Err())
		if turn, err := h.Write(ctx, time.Hour); !turn || err != nil {
			t.Errorf("after the clock was set back: %v, %v", turn, err)
		}
	})
}

func TestKeepMeasuresTheOutboxAndWritesCounts(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHistory(t, client, redistest.Namespace(t))
		h.Interval = 10 * time.Millisecond
		fill(t, client, h)
		ctx, stop := context.WithCancel(redistest.Soon(t))
		defer stop()
		var c history.Counter
		go h.Keep(ctx, &c)
		c.Add("bank", settle.Sent, "")
		var got history.Bucket
		redistest.Eventually(t, "counts and a measurement", func() bool {
			got = sums(t, h, history.Coarse())
			return got.Destinations["bank"].Sent == 1 && got.Gauges != nil
		})
		g := *got.Gauges
		if g.Oldest < time.Minute || g.Oldest > time.Hour || g.Events != 2 || g.Bytes != 500 || g.Parked != 1 || g.Full != 50 || g.Enqueued != 7 {
			t.Errorf("%+v", g)
		}
	})
}

// fill writes the data of a shard with a pending, a waiting and a parked event. The pending event has been due for a
// minute.
func fill(t testing.TB, client redis.UniversalClient, h *history.History) {
	t.Helper()
	ctx, shard := redistest.Soon(t), h.Scripts().Shard(1)
	now, err := client.Time(ctx).Result()
	redistest.Must(t, err,
		client.HSet(ctx, shard.Key("entries"), "a", "{}", "b", "{}", "c", "{}").Err(),
		client.HSet(ctx, shard.Key("counts"), "bytes", 500+1<<51, "left", 5, "parked_bytes", 20).Err(),
		client.ZAdd(ctx, shard.Key("pending"), redis.Z{Member: "a", Score: float64(now.Add(-time.Minute).UnixMilli())}).Err(),
		client.ZAdd(ctx, shard.Key("parked"), redis.Z{Member: "c", Score: float64(now.UnixMilli())}).Err(),
	)
}

func TestMeasurementsOfAnIntervalKeepTheHighest(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		h := newHistory(t, client, redistest.Namespace(t))
		for _, events := range []int64{3, 9, 4} {
			_, err := h.Write(redistest.Soon(t), 0, history.Gauges{Events: events, Oldest: time.Duration(events) * time.Second}.Pairs()...)
			redistest.Must(t, err)
		}
		if g := sums(t, h, history.Coarse()).Gauges; g == nil || g.Events != 9 || g.Oldest != 9*time.Second {
			t.Errorf("%+v", g)
		}
	})
}

func TestLongNamesAreShortenedAndStayDifferent(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	h := newHistory(t, client, "shop")
	var c history.Counter
	long := "https://hooks.example.com/" + strings.Repeat("ä", 100)
	for _, name := range []string{long + "1", long + "2", "a:b"} {
		c.Add(name, settle.Sent, "")
	}
	h.End(t.Context(), &c)
	got := sums(t, h, history.Fine()).Destinations
	if len(got) != 3 || got["a:b"].Sent != 1 {
		t.Fatalf("%v", got)
	}
	for name := range got {
		if len(name) > 60 || name != "a:b" && !strings.HasPrefix(name, "https://hooks.example.com/ä") {
			t.Errorf("a name is %q", name)
		}
	}
}

func TestDestinationsBeyondTheRoomAreSummedUp(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, h := redistest.Soon(t), newHistory(t, client, redistest.Namespace(t))
		var c history.Counter
		for i := range 1200 {
			for range 1 + i%3 {
				c.Add(fmt.Sprint("destination-", i), settle.Retry, fmt.Sprint("class-", i))
			}
		}
		for range 50 {
			c.Add("largest", settle.Sent, "")
		}
		h.End(ctx, &c)
		got, total := sums(t, h, history.Coarse()), int64(0)
		for _, o := range got.Destinations {
			total += o.Failed
		}
		if n := len(got.Destinations); n < 10 || n > 20 || total+got.Others.Failed != 2400 || got.Others.Failed == 0 {
			t.Errorf("%d destinations, %d failed of named ones, %+v of others", n, total, got.Others)
		}
		if n := len(got.Classes); n < 8 || n > 15 || got.OtherClasses == 0 {
			t.Errorf("%d classes, %d failures of others", n, got.OtherClasses)
		}
	})
}

func TestHistoryThatIsOffWritesNothing(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	h := history.New(history.Config{Client: client, Namespace: "shop", Slots: func() []int { return []int{1} }, Off: true, Logger: slog.New(slog.DiscardHandler)})
	var c history.Counter
	c.Add("bank", settle.Sent, "")
	h.Keep(t.Context(), &c)
	h.End(t.Context(), &c)
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 || h.On() {
		t.Errorf("written: %v", keys)
	}
}

func TestCountsOfAFailedWriteGoOutWithTheNextOne(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	h := newHistory(t, client, "shop")
	var c history.Counter
	c.Add("bank", settle.Retry, "http_503")
	server.SetError("ERR not now")
	h.End(t.Context(), &c)
	server.SetError("")
	c.Add("bank", settle.Retry, "http_503")
	h.End(t.Context(), &c)
	got := sums(t, h, history.Fine())
	if got.Destinations["bank"].Failed != 2 || got.Classes["http_503"] != 2 {
		t.Errorf("%+v", got)
	}
}

func TestServerWhoseClockIsFarAwayIsFollowed(t *testing.T) {
	t.Parallel()
	server, client := redistest.Mini(t)
	h := newHistory(t, client, "shop")
	for _, at := range []time.Time{time.Now().Add(-72 * time.Hour), time.Now().Add(100 * time.Hour), time.Now()} { // back and forth
		server.SetTime(at)
		var c history.Counter
		c.Add("bank", settle.Sent, "")
		h.End(t.Context(), &c)
		all, err := h.Read(t.Context(), history.Fine(), at.Add(-time.Second), at.Add(time.Second))
		redistest.Must(t, err)
		if len(all) != 1 || all[0].Destinations["bank"].Sent != 1 {
			t.Errorf("at %v: %+v", at, all)
		}
	}
}

// quarter is the start of an interval of 15 minutes.
var quarter = time.UnixMilli(1_700_000_100_000)

// stopped returns the history of a server whose clock the test sets.
func stopped(t *testing.T) (set func(time.Time), client *redis.Client, h *history.History) {
	server, client := redistest.Mini(t)
	server.SetTime(quarter)
	return server.SetTime, client, newHistory(t, client, redistest.Namespace(t))
}

func write(t *testing.T, h *history.History, pause time.Duration, pairs ...any) (turn bool) {
	t.Helper()
	turn, err := h.Write(redistest.Soon(t), pause, pairs...)
	redistest.Must(t, err)
	return turn
}

func TestIntervalsExpireAnHourAndThirtyDaysAfterTheirEnd(t *testing.T) {
	t.Parallel()
	set, client, h := stopped(t)
	at := quarter.Add(3*time.Minute + 4*time.Second)
	set(at)
	write(t, h, 0, "c:network", "1")
	for r, want := range map[history.Resolution]time.Duration{
		history.Fine(): 6*time.Second + time.Hour, history.Coarse(): 12*time.Minute - 4*time.Second + 30*24*time.Hour,
	} {
		if got := client.PTTL(t.Context(), h.IntervalKey(r, at)).Val(); got != want {
			t.Errorf("%v: expires in %v, want %v", r.Step, got, want)
		}
	}
}

func TestCountsBelongToTheIntervalInWhichTheServerAddsThem(t *testing.T) {
	t.Parallel()
	set, client, h := stopped(t)
	write(t, h, 0, "c:network", "1")
	later := quarter.Add(21 * time.Second)
	set(later)
	write(t, h, 0, "c:network", "2")
	for r, want := range map[history.Resolution]string{history.Fine(): "2", history.Coarse(): "3"} {
		if got := client.HGet(t.Context(), h.IntervalKey(r, later), "c:network").Val(); got != want {
			t.Errorf("%v: %s, want %s", r.Step, got, want)
		}
	}
}

func TestNamesThatFillTheRoomExactlyAreKept(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		size  int
		count string
	}{"d": {325 - 36, "1 0 0 0"}, "c": {95 - 10, "1"}} {
		for more, last := range map[int]string{0: "second", 1: "third"} {
			_, client, h := stopped(t)
			names := map[string]string{kind: "sum", kind + ":z": "third"}
			for name, letter := range map[string]string{"first": "x", "second": "y"} {
				size := c.size - 2
				if name == "second" {
					size += more
				}
				names[kind+":"+strings.Repeat(letter, size)] = name
			}
			for _, name := range []string{"first", "second", "third"} {
				for field, named := range names {
					if named == name {
						write(t, h, 0, field, c.count)
					}
				}
			}
			kept := map[string]bool{}
			for _, field := range client.HKeys(t.Context(), h.IntervalKey(history.Coarse(), quarter)).Val() {
				kept[names[field]] = true
			}
			if want := map[string]bool{"first": true, last: true, "sum": true}; !maps.Equal(kept, want) {
				t.Errorf("%s, %d bytes more: %v, want %v", kind, more, kept, want)
			}
		}
	}
}

func TestRowWithFewerNumbersIsContinued(t *testing.T) {
	t.Parallel()
	_, client, h := stopped(t)
	key := h.IntervalKey(history.Coarse(), quarter)
	redistest.Must(t, client.HSet(t.Context(), key, "d:bank", "3").Err())
	write(t, h, 0, "d:bank", "1 2 0 4")
	if got := client.HGet(t.Context(), key, "d:bank").Val(); got != "4 2 0 4" {
		t.Errorf("got %s", got)
	}
}

func TestMeasurementIsDueOncePerPause(t *testing.T) {
	t.Parallel()
	set, _, h := stopped(t)
	for _, step := range []struct {
		after, pause time.Duration
		want         bool
	}{
		{0, 0, false},
		{0, time.Minute, true},
		{0, time.Minute, false},
		{time.Minute - time.Millisecond, time.Minute, false},
		{time.Minute, time.Minute, true},
		{time.Minute, 0, false},
		{time.Minute + time.Millisecond, time.Millisecond, true},
	} {
		set(quarter.Add(step.after))
		if turn := write(t, h, step.pause); turn != step.want {
			t.Errorf("after %v, with a pause of %v: %t", step.after, step.pause, turn)
		}
	}
}

func TestUserWhoMayNotSetAnExpiryWritesNoInterval(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Do(t.Context(), "ACL", "SETUSER", "poor", "on", ">secret", "~*", "+@all", "-pexpireat").Err())
	h := newHistory(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "poor", "secret" }), "shop")
	_, err := h.Write(redistest.Soon(t), 0, "c:network", "1")
	if keys := server.Admin(t).Keys(t.Context(), "shop*").Val(); err == nil || len(keys) > 0 {
		t.Errorf("%v, written: %v", err, keys)
	}
}
