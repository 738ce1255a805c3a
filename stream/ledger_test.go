package stream

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func inFlight(t *testing.T, l *ledger, ids ...string) []*entry {
	t.Helper()
	if n := l.reserve(t.Context(), len(ids)); n != len(ids) {
		t.Fatalf("%d places, want %d", n, len(ids))
	}
	var out []*entry
	for _, id := range ids {
		e, fresh := l.hold(id)
		if !fresh {
			t.Fatalf("%s is held already", id)
		}
		out = append(out, e)
	}
	return out
}

func TestLedgerReturnsEntriesInTheOrderTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(3)
		es := inFlight(t, l, "a", "b", "c")
		l.postpone(es[0], 3*time.Second)
		l.postpone(es[1], time.Second)
		l.postpone(es[2], 2*time.Second)
		if due, wait, _ := l.takeDue(); len(due) > 0 || wait != time.Second {
			t.Fatalf("%d due, wait %v, want a wait of 1 s", len(due), wait)
		}
		if got := l.untilDue(time.Hour); got != time.Second {
			t.Fatalf("due in %v", got)
		}
		time.Sleep(2 * time.Second)
		due, _, _ := l.takeDue()
		if len(due) != 2 || due[0].id != "b" || due[1].id != "c" {
			t.Fatalf("due are %v, want b and c", due)
		}
		if _, fresh := l.hold("a"); fresh {
			t.Error("a waits, and is held a second time")
		}
		if known := l.known(); len(known) != 3 {
			t.Errorf("known are %v, want all", known)
		}
	})
}

func TestLedgerWakesEntryWaitersOnlyForEntries(t *testing.T) {
	t.Parallel()
	l := newLedger(3)
	_, _, changed := l.takeDue()
	es := inFlight(t, l, "a", "b", "c")
	_, place := l.tryReserve(1, true)
	l.forget(es[0])
	if !isOpen(changed) || isOpen(place) {
		t.Error("who waits for an entry was told of a place, or who waits for a place was not")
	}
	l.postpone(es[1], time.Hour)
	if isOpen(changed) {
		t.Error("an entry waits, and nobody was told")
	}
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestLedgerAlternatesBetweenReadsAndRedeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		reader := func(want int) {
			t.Helper()
			if n, _ := l.tryReserve(5, true); n != want {
				t.Fatalf("the reader got %d places, want %d", n, want)
			}
		}
		redelivery := func(want int) {
			t.Helper()
			due, _, _ := l.takeDue()
			if len(due) != want {
				t.Fatalf("%d redelivered, want %d", len(due), want)
			}
			for _, e := range due {
				l.postpone(e, 0)
			}
		}
		l.postpone(inFlight(t, l, "nacked")[0], 0)
		for range 3 {
			reader(0) // it waits, and due entries go first
			redelivery(1)
			redelivery(0) // not twice while the reader waits
			reader(1)
			l.release(1)
		}
		redelivery(1)
		redelivery(1) // the reader does not wait
	})
}

func TestLedgerSharesPlacesBetweenReadsAndRedeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ max, due, want, gets int }{ // if it is the reader's turn
			{5, 0, 2, 2}, {5, 0, 9, 5}, {5, 2, 9, 3}, {5, 2, 2, 2}, {5, 5, 9, 1}, {3, 5, 9, 1}, {1, 1, 1, 1},
		} {
			l := newLedger(c.max)
			for i := range c.due {
				l.taken++
				e, _ := l.hold(strconv.Itoa(i))
				l.postpone(e, 0)
			}
			l.readerTurn = true
			if n := l.reserve(t.Context(), c.want); n != c.gets || l.taken != n || l.readerTurn {
				t.Errorf("%+v: the reader gets %d, %d are taken", c, n, l.taken)
			}
			left := min(c.due, c.max-c.gets)
			due, wait, _ := l.takeDue()
			if len(due) != left || left == 0 && wait >= 0 || l.taken != c.gets+left {
				t.Errorf("%+v: then %d are redelivered, want %d; the wait is %v", c, len(due), left, wait)
			}
			l.release(c.gets + left)
			if l.taken != 0 {
				t.Errorf("%+v: %d places are taken in the end", c, l.taken)
			}
		}
	})
}

func TestLedgerReturnsTheTimeUntilAnEntryIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(2)
		if due, wait, _ := l.takeDue(); len(due) > 0 || wait >= 0 || l.untilDue(time.Hour) != time.Hour {
			t.Errorf("%d due of none, wait %v, %v", len(due), wait, l.untilDue(time.Hour))
		}
		es := inFlight(t, l, "a", "b")
		l.postpone(es[0], time.Second)
		l.postpone(es[1], time.Second) // after the first
		if got := l.untilDue(time.Millisecond); got != time.Millisecond {
			t.Errorf("due in %v, at most a millisecond was asked for", got)
		}
		time.Sleep(time.Second)
		if due, _, _ := l.takeDue(); len(due) != 2 || due[0] != es[0] || due[1] != es[1] {
			t.Errorf("%v are due, want a and b", due)
		}
	})
}

func TestLedgerReturnsHeartbeatsOnlyForEntriesInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(4)
		es := inFlight(t, l, "flies", "waits", "shunned", "new")
		l.postpone(es[1], time.Hour)
		l.shun(es[2], time.Hour)
		time.Sleep(time.Second)
		l.delivered(es[3], "consumer", 7)
		if e := es[3]; e.deliveries != 7 || e.from != "consumer" || !e.read.Equal(time.Now()) || e.first.Equal(e.read) {
			t.Errorf("%+v", e)
		}
		beats := func(d time.Duration, want ...string) {
			t.Helper()
			if got := l.toBeat(d); !slices.Equal(got, want) {
				t.Errorf("beats for %q, want %q", got, want)
			}
		}
		beats(time.Second + 1)
		beats(time.Second, "flies")
		beats(time.Second) // not again
		l.unbeaten([]string{"flies", "gone"})
		beats(time.Second, "flies")
		time.Sleep(time.Second)
		l.forget(es[0])
		beats(time.Second, "new")
		if e, fresh := l.hold("shunned"); !fresh || e.shunned {
			t.Error("a shunned entry that comes again is refused")
		}
	})
}

func TestLedgerForgetsShunnedEntriesAfterTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		l.shun(inFlight(t, l, "a")[0], time.Minute)
		time.Sleep(time.Minute - time.Nanosecond)
		if !l.known()["a"] {
			t.Error("a may be claimed too early")
		}
		time.Sleep(time.Nanosecond)
		if l.known()["a"] || len(l.entries) != 0 {
			t.Error("a is never claimed")
		}
	})
}

func TestLedgerReportsTheLastEntryInFlight(t *testing.T) {
	t.Parallel()
	l := newLedger(3)
	es := inFlight(t, l, "a", "b", "c")
	if last, over := l.postpone(es[0], 0); last || over {
		t.Fatal("two are in flight")
	}
	if waiting, empty := l.close(); empty || len(waiting) != 1 || waiting[0] != es[0] {
		t.Fatal("one waits, two are in flight")
	}
	if l.forget(es[1]) {
		t.Fatal("one is in flight")
	}
	if last, over := l.postpone(es[2], 0); !last || !over {
		t.Fatal("none is in flight")
	}
	if len(l.entries) != 0 || len(l.queue) != 0 {
		t.Errorf("left are %v and %v", l.entries, l.queue)
	}
	if _, empty := newLedger(1).close(); !empty {
		t.Error("an unused ledger is empty")
	}
}

func TestReserveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		inFlight(t, l, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n := l.reserve(ctx, 1); n != 0 {
			t.Errorf("%d places, want none", n)
		}
	})
}

// replyError is an error that a server returns.
type replyError string

func (e replyError) Error() string { return string(e) }
func (e replyError) RedisError()   {}

var _ redis.Error = replyError("")

func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	o := outage{log: slog.New(slog.NewTextHandler(&text, nil))}
	network, loading := errors.New("connection refused"), replyError("LOADING Redis is loading")
	o.begins("read", network)
	o.begins("claim", network)
	o.begins("redeliver", loading)
	o.begins("read", loading)
	o.over("redeliver")
	o.over("read")
	o.begins("claim", replyError("NOPERM no"))
	o.over("read")
	o.begins("claim", replyError("NOPERM no"))
	o.begins("read", network)
	o.over("claim")
	var got []string
	for line := range strings.Lines(text.String()) {
		level, _, _ := strings.Cut(line[strings.Index(line, "level=")+6:], " ")
		op, _, _ := strings.Cut(line[strings.Index(line, "operation=")+10:], " ")
		got = append(got, level+" "+strings.TrimSpace(op))
	}
	want := []string{"ERROR read", "INFO redeliver", "ERROR claim", "ERROR read", "INFO claim"}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}
