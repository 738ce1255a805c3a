package sqltx

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

const (
	following = "AS waits"
	leasing   = "SET lease = ?, next_attempt_at = NOW_MS + ? WHERE published"
)

// follower returns a row of the query for rows behind a claimed one.
func follower(id int, attempts int64, key string, parked, waits bool) []any {
	return append(rows(id, 1, attempts, key)[0], parked, waits)
}

// byPart returns rows for each statement by the part that it contains, once, and leases as many rows as requested.
func byPart(parts map[string][][]any) func(string, []any) ([][]any, error) {
	return func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, leasing) {
			return make([][]any, len(args)-2), nil
		}
		for part, list := range parts {
			if strings.Contains(statement, part) {
				delete(parts, part)
				return list, nil
			}
		}
		return nil, nil
	}
}

func ids(args []any) (out []int64) {
	for _, v := range args {
		if id, ok := v.(int64); ok {
			out = append(out, id)
		}
	}
	return out
}

func TestClaimLeasesFollowersUpToTheFirstThatCannotRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found [][]any
		skip  bool
		want  []int64
	}{
		"nothing":                        {nil, false, nil},
		"the next":                       {[][]any{follower(2, 0, "a", false, true)}, false, []int64{2}},
		"all":                            {[][]any{follower(2, 0, "a", false, false), follower(3, 0, "a", false, true)}, false, []int64{2, 3}},
		"until one waits for its turn":   {[][]any{follower(2, 0, "a", false, false), follower(3, 1, "a", false, true), follower(4, 0, "a", false, false)}, false, []int64{2}},
		"tried, and not waiting":         {[][]any{follower(2, 1, "a", false, false), follower(3, 0, "a", false, false)}, false, []int64{2, 3}},
		"until one is used up":           {[][]any{follower(2, 10, "a", false, false), follower(3, 0, "a", false, false)}, false, nil},
		"tried once less than it may be": {[][]any{follower(2, 9, "a", false, false)}, false, []int64{2}},
		"until a parked one":             {[][]any{follower(2, 0, "a", true, false), follower(3, 0, "a", false, false)}, false, nil},
		"behind a parked one":            {[][]any{follower(2, 0, "a", true, false), follower(3, 0, "a", false, false)}, true, []int64{3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, 1, 1, "a"), following: c.found})}
			inBubble(t, db, OutboxPublisherConfig{SkipParked: c.skip, BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				(<-events).Ack()
				for _, id := range c.want {
					msg := <-events
					if msg.ID() != fmt.Sprint(id) {
						t.Errorf("handed out %s, want %d", msg.ID(), id)
					}
					msg.Ack()
				}
				synctest.Wait()
				if len(events) > 0 || strings.Contains(logs.String(), "level=") {
					t.Errorf("%d more are handed out:\n%s", len(events), logs)
				}
			})
			var leased []int64
			for _, h := range db.of(leasing) {
				leased = append(leased, ids(h.args[2:])...)
			}
			if !slices.Equal(leased, c.want) {
				t.Errorf("leased %v, want %v", leased, c.want)
			}
			if found := db.of(following); len(found) != 1 || fmt.Sprint(found[0].args) != "[a 1 9]" {
				t.Errorf("looked for %v, want as many as there is room for", found)
			}
		})
	}
}

func TestClaimGivesBackAKeyThatAnotherPublisherLeased(t *testing.T) {
	t.Parallel()
	db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, 4, 1, "a", "b"), contesting: {{"a"}}})}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		synctest.Wait()
		if id := (<-events).ID(); id != "2" {
			t.Errorf("handed out %s, want the first of the key that nobody else holds", id)
		}
		var backs []int64 // of one statement or of two
		for _, h := range db.of(returning) {
			backs = append(backs, ids(h.args[3:])...)
		}
		if !slices.Equal(backs, []int64{1, 3}) {
			t.Errorf("given back %v, want 1 and 3", backs)
		}
	})
}

func TestClaimReadsNoFollowersIfOthersLeasedAllKeys(t *testing.T) {
	t.Parallel()
	db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, 1, 1, "a"), contesting: {{"a"}}})}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		synctest.Wait()
		if n := len(db.of(following)); n > 0 {
			t.Errorf("looked %d times behind nothing", n)
		}
	})
}

func TestClaimReadsNoFollowersIfTheBatchIsFull(t *testing.T) {
	t.Parallel()
	for size, looks := range map[int]int{2: 0, 3: 1} {
		db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, 2, 1, "a", "b")})}
		inBubble(t, db, OutboxPublisherConfig{BatchSize: size}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
			synctest.Wait()
			if n := len(db.of(following)); n != looks {
				t.Errorf("with room for %d looked %d times for more, want %d", size, n, looks)
			}
		})
	}
}

func TestNextEventOfAKeyIsHandedOutBeforeThePreviousIsWritten(t *testing.T) {
	t.Parallel()
	answer := byPart(map[string][][]any{claiming: rows(1, 1, 1, "a"), following: {follower(2, 0, "a", false, false)}})
	db := &answers{}
	db.answer = func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, publishing) && time.Since(db.began) < time.Minute {
			return nil, errDown
		}
		return answer(statement, args)
	}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		(<-events).Ack()
		synctest.Wait()
		if len(events) != 1 {
			t.Error("the next one is not handed out")
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestClaimReportsRowsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parts map[string][][]any
		log   string
	}{
		"claimed rows":            {map[string][][]any{claiming: {{"no number", "", "t", noData, true, "{}", nil, int64(1)}}}, "claim failed"},
		"claimed rows, cut off":   {map[string][][]any{claiming: {rows(1, 1, 1)[0], nil}}, "claim failed"},
		"keys of others":          {map[string][][]any{claiming: rows(1, 1, 1, "a"), contesting: {{nil}}}, "claim of ordered events failed"},
		"followers":               {map[string][][]any{claiming: rows(1, 1, 1, "a"), following: {append(rows(2, 1, 0, "a")[0], "no", "bool")}}, "claim of ordered events failed"},
		"keys of others, cut off": {map[string][][]any{claiming: rows(1, 1, 1, "a"), contesting: {{"b"}, nil}}, "claim of ordered events failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, &answers{answer: byPart(c.parts)}, OutboxPublisherConfig{BatchSize: 10}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				synctest.Wait()
				if n := logs.Count(c.log); n != 1 {
					t.Errorf("%d lines say %q:\n%s", n, c.log, logs)
				}
			})
		})
	}
}

func TestClaimGivesBackFollowersThatItCannotLease(t *testing.T) {
	t.Parallel()
	const log = "claim of ordered events failed"
	for name, c := range map[string]struct {
		refuse string
		leased int // of two
		backs  []int64
		lines  int
	}{
		"leased":     {"-", 2, nil, 0},
		"one left":   {"-", 1, []int64{2, 3}, 1},
		"not found":  {following, 2, nil, 1},
		"refused":    {leasing, 2, nil, 1},
		"keys asked": {contesting, 2, []int64{1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := byPart(map[string][][]any{claiming: rows(1, 1, 1, "a"), following: {follower(2, 0, "a", false, false), follower(3, 0, "a", false, false)}})
			db := &answers{answer: func(statement string, args []any) ([][]any, error) {
				switch {
				case strings.Contains(statement, c.refuse):
					return nil, errDown
				case strings.Contains(statement, leasing):
					return make([][]any, c.leased), nil
				}
				return answer(statement, args)
			}}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
				synctest.Wait()
				var backs []int64
				for _, h := range db.of(returning) {
					backs = append(backs, ids(h.args[3:])...)
				}
				slices.Sort(backs)
				if !slices.Equal(backs, c.backs) || logs.Count(log) != c.lines {
					t.Errorf("given back %v, want %v:\n%s", backs, c.backs, logs)
				}
				if first := !slices.Contains(c.backs, 1); first != (len(events) == 1) {
					t.Errorf("%d handed out", len(events))
				}
			})
		})
	}
}

func TestOutcomeOfAnEventDecidesWhetherItsFollowersContinue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settle func(*message.RawMessage)
		skip   bool
		goesOn bool
	}{
		"sent":               {func(msg *message.RawMessage) { msg.Ack() }, false, true},
		"failed":             {func(msg *message.RawMessage) { msg.Nack(errDown) }, false, false},
		"failed, skipping":   {func(msg *message.RawMessage) { msg.Nack(errDown) }, true, false},
		"parked":             {func(msg *message.RawMessage) { msg.Nack(message.Permanent(errDown)) }, false, false},
		"parked, skipping":   {func(msg *message.RawMessage) { msg.Nack(message.Permanent(errDown)) }, true, true},
		"given back":         {func(msg *message.RawMessage) { msg.Release() }, true, false},
		"not tried":          {func(msg *message.RawMessage) { msg.Nack(untried{}) }, true, false},
		"written by another": {func(msg *message.RawMessage) { msg.Acknowledged() }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: byPart(map[string][][]any{
				claiming: rows(1, 1, 1, "a"), following: {follower(2, 0, "a", false, false), follower(3, 0, "a", false, false)},
			})}
			inBubble(t, db, OutboxPublisherConfig{BatchSize: 10, SkipParked: c.skip}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
				c.settle(<-events)
				synctest.Wait()
				var backs []int64
				for _, h := range db.of(returning) {
					if h.args[1] == int64(0) { // rows that were claimed behind another one counted no attempt
						backs = append(backs, ids(h.args[3:])...)
					}
				}
				if c.goesOn {
					if len(backs) > 0 || len(events) != 1 {
						t.Errorf("%d are handed out and %v given back, want the next", len(events), backs)
					}
					return
				}
				if !slices.Equal(backs, []int64{2, 3}) || len(events) > 0 {
					t.Errorf("%d are handed out and %v given back, want both back", len(events), backs)
				}
			})
		})
	}
}

func TestStopGivesBackFollowersOfAnEventInFlight(t *testing.T) {
	t.Parallel()
	db := &answers{answer: byPart(map[string][][]any{
		claiming: rows(1, 1, 1, "a"), following: {follower(2, 0, "a", false, false), follower(3, 0, "a", false, false)},
	})}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), _ *rig.Lines) {
		first := <-events
		stop()
		synctest.Wait()
		backs := db.of(returning)
		if len(backs) != 1 || backs[0].args[1] != int64(0) || len(ids(backs[0].args[3:])) != 2 {
			t.Errorf("given back: %v, want 2 and 3, of which no attempt was counted", backs)
		}
		first.Ack()
		p.Wait()
	})
}

type untried struct{}

func (untried) Error() string { return "not tried" }
func (untried) Untried() bool { return true }

func TestFollowerCountsItsAttemptWhenItIsTried(t *testing.T) {
	t.Parallel()
	db := &answers{answer: byPart(map[string][][]any{claiming: rows(1, 1, 4, "a"), following: {follower(2, 4, "a", false, false)}})}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		(<-events).Ack()
		(<-events).Nack(errDown)
		synctest.Wait()
		if found := db.of(failing); len(found) != 1 || found[0].args[1] != int64(5) {
			t.Errorf("written: %v, want a fifth attempt", found)
		}
	})
}

func TestEventThatCannotBeDecodedIsParked(t *testing.T) {
	t.Parallel()
	bad := rows(1, 3, 1)
	bad[0][5] = "no JSON"
	db := &answers{answer: once(claiming, bad)}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 10}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), logs *rig.Lines) {
		synctest.Wait()
		if len(events) != 2 || logs.Count("event parked") != 1 || logs.Count("event=1 ") != 1 {
			t.Errorf("%d handed out:\n%s", len(events), logs)
		}
	})
}

func TestManySettlementsAreWrittenInSeveralStatements(t *testing.T) {
	t.Parallel()
	claim := once(claiming, rows(1, 501, 1))
	db := &answers{}
	db.answer = func(statement string, args []any) ([][]any, error) {
		if strings.Contains(statement, publishing) && time.Since(db.began) < 10*time.Millisecond {
			return nil, errDown // until all settlements are queued
		}
		return claim(statement, args)
	}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 600}, func(events <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		for range 501 {
			(<-events).Ack()
		}
		time.Sleep(time.Second)
		var sizes []int
		for _, h := range db.of(publishing) {
			if h.at > 0 {
				sizes = append(sizes, len(h.args))
			}
		}
		if !slices.Equal(sizes, []int{500, 1}) {
			t.Errorf("statements for %v rows, want 500 at most", sizes)
		}
	})
}

func TestSettlementRetriesOnlyTheStatementThatFailed(t *testing.T) {
	t.Parallel()
	for _, part := range []string{publishing, returning, failing} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			claim := once(claiming, rows(1, 3, 1))
			db := &answers{}
			db.answer = func(statement string, args []any) ([][]any, error) {
				if strings.Contains(statement, part) && time.Since(db.began) < 50*time.Millisecond {
					return nil, errDown
				}
				return claim(statement, args)
			}
			inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), _ *rig.Lines) {
				(<-events).Ack()
				(<-events).Nack(errDown)
				(<-events).Release()
				time.Sleep(time.Second)
				wantTimes(t, "writes", db.times(part), 0, 20*time.Millisecond, 60*time.Millisecond)
				if counted := db.of(returning)[0].args[1]; counted != int64(1) {
					t.Errorf("%v attempts are given back, want the one that its claim counted", counted)
				}
			})
		})
	}
}

func TestClaimWaitsUntilHalfOfAnOddBatchIsFree(t *testing.T) {
	t.Parallel()
	db := &answers{answer: once(claiming, rows(1, 3, 1), rows(4, 1, 1), rows(5, 1, 1))}
	inBubble(t, db, OutboxPublisherConfig{BatchSize: 3}, func(_ <-chan *message.RawMessage, _ *OutboxPublisher, _ func(), _ *rig.Lines) {
		time.Sleep(1200 * time.Millisecond)
		wantTimes(t, "looks", db.times(claiming), 0, 0, 500*time.Millisecond) // while five of six rows are held, there is too little room for a claim
		if found := db.of(claiming); found[2].args[0] != int64(2) {
			t.Errorf("claimed up to %v, want 2", found[2].args[0])
		}
	})
}

func TestClaimWorksOnDatabasesWithoutReturning(t *testing.T) {
	t.Parallel()
	const choose, lease, read = "SELECT o.id", "attempts = attempts + 1 WHERE id IN", "SELECT id, topic"
	for name, refuse := range map[string]string{"works": "-", "not begun": "BEGIN", "not chosen": choose, "not leased": lease, "not read": read, "not committed": "COMMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := byPart(map[string][][]any{choose: {{int64(2)}, {int64(1)}}, read: {rows(2, 1, 1)[0], rows(1, 1, 1)[0]}})
			db := &answers{answer: func(statement string, args []any) ([][]any, error) {
				if strings.Contains(statement, refuse) {
					return nil, errDown
				}
				return answer(statement, args)
			}}
			p := &pump{OutboxPublisher: NewOutboxPublisher(OutboxPublisherConfig{DB: db.open(t), Dialect: Dialect{Name: "test", Quote: `"`, NowMillis: "NOW_MS", OrderingKeys: "KEYS"}})}
			got, err := p.leaseRows(t.Context(), "mine", 7, "TRUE")
			if refuse != "-" {
				if !errors.Is(err, errDown) || got != nil {
					t.Errorf("leased %v, error is %v", got, err)
				}
				if back := len(db.of("ROLLBACK")) == 1; back == (refuse == "BEGIN" || refuse == "COMMIT") {
					t.Errorf("rolled back: %t", back)
				}
				return
			}
			if err != nil || len(got) != 2 || got[0].id != 1 || got[1].id != 2 {
				t.Errorf("leased %v, %v, want 1 and 2", got, err)
			}
			if h := db.of(lease)[0]; fmt.Sprint(h.args) != "[mine 30000 2 1]" || fmt.Sprint(db.of(choose)[0].args) != "[7]" {
				t.Errorf("leased with %v", h.args)
			}
			if got, err = p.leaseRows(t.Context(), "mine", 7, "TRUE"); len(got) > 0 || err != nil || len(db.of(lease)) != 1 {
				t.Errorf("of nothing leased %v, %v", got, err)
			}
		})
	}
}

func TestClaimWhoseReplyIsCutOffLeasesNoRow(t *testing.T) {
	t.Parallel()
	for name, returning := range map[string]bool{"with RETURNING": true, "without RETURNING": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &answers{answer: func(statement string, _ []any) ([][]any, error) {
				switch {
				case strings.Contains(statement, columns):
					return [][]any{rows(1, 1, 1)[0], nil}, nil
				case strings.Contains(statement, "SELECT o.id"):
					return [][]any{{int64(1)}, {int64(2)}}, nil
				}
				return nil, nil
			}}
			dialect := Dialect{Name: "test", Quote: `"`, NowMillis: "NOW_MS", OrderingKeys: "KEYS", Returning: returning}
			p := &pump{OutboxPublisher: NewOutboxPublisher(OutboxPublisherConfig{DB: db.open(t), Dialect: dialect})}
			if got, err := p.leaseRows(t.Context(), "mine", 7, "TRUE"); got != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("leased %v, %v", got, err)
			}
		})
	}
}
