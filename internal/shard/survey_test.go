package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
)

// slotOf returns the slot of a key of a shard.
func slotOf(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return slot.OfTag(tag)
}

// listings returns the pages that a server was asked for, each as its slot and the arguments of the script.
func listings(server *scripted.Server) (pages []string) {
	for _, heard := range server.Heard("evalsha") {
		keys, _ := strconv.Atoi(heard.Cmd[2])
		pages = append(pages, fmt.Sprint(slotOf(heard.Cmd[3]), " ", strings.Join(heard.Cmd[3+keys:], " ")))
	}
	return pages
}

// row is an event in the reply of the script list. Each failure is its time and its attempt.
func row(at, attempts, behind int, lease string, failures ...[2]int) []any {
	var history []string
	for _, f := range failures {
		history = append(history, fmt.Sprintf("%d %d c text", f[0], f[1]))
	}
	return []any{"id", "k", strconv.Itoa(at), strconv.Itoa(attempts), lease, "", strings.Join(history, "\n"), "", 0, "", "", behind, 0}
}

// page is a reply of the script list. The next page is behind the member, if there is one.
func page(next string, rows ...[]any) []any {
	return slices.Concat([]any{"1", next, next, 0}, slices.Concat(rows...))
}

func upTo(n int) (slots []int) {
	for i := range n {
		slots = append(slots, i)
	}
	return slots
}

func TestBlockedReadsAPageOfEachShardInTurnBeginningWithTheFirstParked(t *testing.T) {
	t.Parallel()
	pages := map[string][]any{
		"1":  page("", row(50, 1, 4, "")),
		"2":  page("7", row(70, 1, 1, ""), row(60, 1, 2, "")),
		"27": page("8"),
		"28": page("", row(40, 1, 16, "")),
		"3":  page("9", row(45, 1, 8, "")),
		"39": page("", row(90, 1, 32, "")),
	}
	first := map[int]string{1: "3000", 2: "1000", 3: "2000", 4: "500"}
	s, server := answering(t, func(cmd []string) any {
		switch strings.ToLower(cmd[0]) {
		case "zrange":
			return []any{"m", first[slotOf(cmd[1])]}
		case "exists":
			return min(1, slotOf(cmd[1])&3) // the shard of slot 4 has no lanes
		}
		return pages[strconv.Itoa(slotOf(cmd[3]))+cmd[len(cmd)-5]]
	})
	sum, err := s.Blocked(t.Context(), []int{1, 2, 3, 4})
	if want := (Blocked{6, 63, time.UnixMilli(40), false}); err != nil || sum != want {
		t.Errorf("%v, %v; want %v", sum, err, want)
	}
	want := []string{
		"2 blocking 1000    k 0 ", "3 blocking 1000    k 0 ", "1 blocking 1000    k 0 ", "2 blocking 1000 7 7  k 0 ", "3 blocking 1000 9 9  k 0 ", "2 blocking 1000 8 8  k 0 ",
	}
	if got := listings(server); !slices.Equal(got, want) {
		t.Errorf("pages %q, want %q", got, want)
	}
}

func TestBlockedReadsNoMoreThan20000Events(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shards, endless int // the endless ones are the last ones
		pages           int
		more            bool
	}{
		{1, 0, 1, false},
		{1, 1, 20, true},
		{2, 1, 21, true}, // a page of 100, and 20 of 1000
		{200, 0, 200, false},
		{201, 0, 200, true},
		{300, 0, 200, true},
	} {
		asked := 0
		s, server := answering(t, func(cmd []string) any {
			switch strings.ToLower(cmd[0]) {
			case "zrange":
				return []any{"m", "5"}
			case "exists":
				return 1
			}
			if asked++; asked < 400 && slotOf(cmd[3]) >= c.shards-c.endless {
				return page("1")
			}
			return page("")
		})
		sum, err := s.Blocked(t.Context(), upTo(c.shards))
		if got := len(listings(server)); err != nil || got != c.pages || sum.More != c.more {
			t.Errorf("%+v: %d pages, %+v, %v", c, got, sum, err)
		}
	}
}

// failing returns scripts of a server whose shards have failures and waiting events.
func failing(t *testing.T, has func(key string, n int) int, list func(n int) []any) (*Scripts, *scripted.Server) {
	t.Helper()
	return answering(t, func(cmd []string) any {
		if strings.EqualFold(cmd[0], "exists") {
			return has(cmd[1][strings.LastIndexByte(cmd[1], '}')+2:], slotOf(cmd[1]))
		}
		return list(slotOf(cmd[3]))
	})
}

func TestFailingSinceTheFirstFailureOfTheFirst100Shards(t *testing.T) {
	t.Parallel()
	for shards, want := range map[int][2]int64{1: {1000, 1}, 99: {902, 99}, 100: {901, 100}, 101: {901, 100}, 300: {901, 100}} {
		s, server := failing(t, func(string, int) int { return 1 }, func(n int) []any { return page("", row(5, 1, 0, "", [2]int{1000 - n, 1})) })
		since, err := s.FailingSince(t.Context(), upTo(shards))
		if read := int64(len(listings(server))); err != nil || since.UnixMilli() != want[0] || read != want[1] {
			t.Errorf("%d shards: %d, %v, %d of them read; want %v", shards, since.UnixMilli(), err, read, want)
		}
	}
}

func TestFailingSinceReadsShardsWithFailuresAndWaitingEvents(t *testing.T) {
	t.Parallel()
	const most = 200 // with failures, of which every second one has only parked events
	s, server := failing(t, func(key string, n int) int {
		return map[string]int{keyErrors: max(0, min(1, n-100)), keyPending: n % 2}[key]
	}, func(int) []any { return page("") })
	if since, err := s.FailingSince(t.Context(), upTo(most+101)); err != nil || !since.IsZero() {
		t.Errorf("%v, %v", since, err)
	}
	var want []string
	for n := 101; n <= most+100; n += 2 {
		want = append(want, fmt.Sprint(n, " pending 100     0 "))
	}
	if got := listings(server); !slices.Equal(got, want) {
		t.Errorf("pages %q, want %q", got, want)
	}

	s, server = failing(t, func(key string, _ int) int { return map[string]int{keyErrors: 1}[key] }, func(int) []any { return page("") })
	if _, err := s.FailingSince(t.Context(), []int{1}); err != nil || len(listings(server)) > 0 {
		t.Errorf("%v, pages %q", err, listings(server))
	}
}

func TestFailingSinceTheEarliestOfAllFailures(t *testing.T) {
	t.Parallel()
	none := row(5, 1, 0, "")
	pages := map[int][]any{
		1: page("", none, row(5, 2, 0, "", [2]int{80, 2}, [2]int{70, 1}), row(5, 1, 0, "", [2]int{60, 1}), none),
		2: page("", row(5, 2, 0, "l", [2]int{50, 1}), row(5, 1, 0, "", [2]int{90, 1})),
		3: page("", none, row(5, 1, 0, "", [2]int{95, 1})),
	}
	s, _ := failing(t, func(string, int) int { return 1 }, func(n int) []any { return pages[n] })
	for _, c := range []struct {
		slots []int
		want  int64
	}{{[]int{1}, 60}, {[]int{2}, 50}, {[]int{3}, 95}, {[]int{1, 2, 3}, 50}, {[]int{3, 1}, 60}} {
		if since, err := s.FailingSince(t.Context(), c.slots); err != nil || since.UnixMilli() != c.want {
			t.Errorf("%v: %v, %v; want %d", c.slots, since, err, c.want)
		}
	}
}

func TestWaitingReturnsTheSlotsThatHaveWaitingEventsBesideAnError(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{-1, 0, 2, 3} {
		s, _ := answering(t, func(cmd []string) any {
			n := slotOf(cmd[1])
			if n == refused {
				return errors.New("ERR refused")
			}
			return n % 2
		})
		want := slices.DeleteFunc([]int{1, 3}, func(n int) bool { return n == refused })
		got, err := s.Waiting(t.Context(), upTo(4))
		if !slices.Equal(got, want) || (err != nil) != (refused >= 0) {
			t.Errorf("without slot %d: %v, %v; want %v", refused, got, err, want)
		}
	}
}

func TestMarkIsThatOfTheGenerationWithTheMessage(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := New(eval.New(client, "n", slog.New(slog.DiscardHandler)), Constants{Namespace: "n"})
	home := s.Shard(1)
	empty, err := s.Mark(t.Context(), home, "both")
	if assert.Must(t, err); empty != (Mark{}) {
		t.Errorf("in an empty shard: %+v", empty)
	}
	for key, fields := range map[string][]string{
		keyInboxA:   {fieldID, "17673120000021767225600002" + "1" + "0000000000000" + "an identity", "new", "t", "both", "t"},
		keyInboxB:   {fieldID, "17673120000011767225600001" + "1" + "0000000000000" + "an older identity", "old", "t!", "both", "t"},
		keyBroken:   {"old", "SET k"},
		keyResults:  {"new", "replies"},
		keyResultsB: {"old", "replies"},
	} {
		server.HSet(home.Key(key), fields...)
	}
	newer, older := time.UnixMilli(1_767_225_600_002), time.UnixMilli(1_767_225_600_001)
	for digest, want := range map[string]Mark{
		"new":     {Known: true, Replies: true, Begun: newer},
		"both":    {Known: true, Begun: newer},
		"old":     {Known: true, Older: true, Broken: "SET k", Replies: true, Begun: older},
		"unknown": {},
	} {
		want.Identity = "an identity"
		if got, err := s.Mark(t.Context(), home, digest); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", digest, got, err, want)
		}
	}
}

func TestDeniedReturnsTheCommandsOfTheReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply []any
		want  []string
		known bool
	}{
		{[]any{"0"}, nil, false},
		{[]any{"1"}, nil, true},
		{[]any{"1", "get"}, []string{"get"}, true},
		{[]any{"1", "get", "config|get"}, []string{"get", "config|get"}, true},
	} {
		s, server := answering(t, func([]string) any { return c.reply })
		denied, known, err := s.Denied(t.Context(), s.Shard(1), []string{"get", "set", "config|get"})
		if err != nil || known != c.known || !slices.Equal(denied, c.want) {
			t.Errorf("%v: %v, %t, %v", c.reply, denied, known, err)
		}
		if asked := listings(server); !slices.Equal(asked, []string{"1 get set config|get"}) {
			t.Errorf("asked for %q", asked)
		}
	}
	for _, reply := range []any{nil, "1", []any{}} {
		s, _ := answering(t, func([]string) any { return reply })
		if denied, known, err := s.Denied(t.Context(), s.Shard(1), []string{"get"}); err == nil || denied != nil || known {
			t.Errorf("%v: %v, %t, %v", reply, denied, known, err)
		}
	}
}

func TestSweepPausesAtLeastAMillisecond(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]string{0: "1", -time.Second: "1", time.Microsecond: "1", time.Millisecond: "1", 2 * time.Millisecond: "2"} {
		s, server := answering(t, func([]string) any { return []any{"1", 3, "5"} })
		chunk, wait, err := s.Sweep(t.Context(), s.Shard(0), pause, 4)
		if asked := listings(server); err != nil || chunk != 3 || wait != 5*time.Millisecond || !slices.Equal(asked, []string{"0 " + want + " 4"}) {
			t.Errorf("%v: chunk %d, %v, %v, asked for %q", pause, chunk, wait, err, asked)
		}
	}
}

func TestPausesAreSortedByDestination(t *testing.T) {
	t.Parallel()
	reply := []any{"1000", 4}
	for _, destination := range []string{"b", "d", "a", "c"} {
		reply = append(reply, destination, `{"who":"w`+destination+`","since":"5"}`)
	}
	s, _ := answering(t, func([]string) any { return reply })
	all, now, err := s.Pauses(t.Context(), s.Shard(0))
	var want []Pause
	for _, destination := range []string{"a", "b", "c", "d"} {
		want = append(want, Pause{Destination: destination, Who: "w" + destination, Since: time.UnixMilli(5)})
	}
	if err != nil || !slices.Equal(all, want) || !now.Equal(time.UnixMilli(1000)) {
		t.Errorf("%+v, %v, %v", all, now, err)
	}
}

// counting is a hook that notes the number of commands of each pipeline.
type counting struct{ sizes []int }

func (*counting) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.sizes = append(c.sizes, len(cmds))
		return next(ctx, cmds)
	}
}

func TestPipelineOfASurveyReadsAtMost256Shards(t *testing.T) {
	t.Parallel()
	s, _ := answering(t, func(cmd []string) any {
		if strings.EqualFold(cmd[0], "zrange") {
			return []any{}
		}
		return 0
	})
	pipelines := &counting{}
	s.client.AddHook(pipelines)
	if sum, err := s.Blocked(t.Context(), upTo(257)); err != nil || sum != (Blocked{}) {
		t.Errorf("%+v, %v", sum, err)
	}
	if since, err := s.FailingSince(t.Context(), upTo(513)); err != nil || !since.IsZero() {
		t.Errorf("%v, %v", since, err)
	}
	if want := []int{256, 1, 256, 256, 1}; !slices.Equal(pipelines.sizes, want) {
		t.Errorf("pipelines of %d, want %d", pipelines.sizes, want)
	}
}
