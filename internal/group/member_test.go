package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/scripted"
)

// answering returns a member of group g of stream s, on a server that gives one answer to each command, or the answer to its name.
func answering(t *testing.T, answers map[string]any) (*Member, *scripted.Server) {
	t.Helper()
	server := scripted.New(func(cmd []string) any {
		switch answer := answers[strings.ToLower(cmd[0])].(type) {
		case func(cmd []string) any:
			return answer(cmd)
		case nil:
			return scripted.Status("OK")
		default:
			return answer
		}
	}, scripted.GroupScripts...)
	return &Member{Client: server.Client(t), Stream: "s", Group: "g", Consumer: "c"}, server
}

func TestErrorOfEachRequestIsReturned(t *testing.T) {
	t.Parallel()
	server := scripted.New(func([]string) any { return errors.New("LOADING Redis is loading") }, scripted.GroupScripts...)
	m := &Member{Client: server.Client(t), Stream: "s", Group: "g", Consumer: "c"}
	ctx := t.Context()
	pending := func() (err error) {
		for page, failure := range m.Pending(ctx, "c") {
			if err = failure; len(page) > 0 {
				t.Errorf("a page of %d", len(page))
			}
		}
		return err
	}
	read := m.NewRead(ctx, 1, -1)
	_ = m.Client.Process(ctx, read)
	for name, err := range map[string]error{
		"LastID":       assert.ErrOf(LastID(ctx, m.Client, "s")),
		"Create":       assert.ErrOf(m.Create(ctx, "0")),
		"Entries":      assert.ErrOf(read.Entries()),
		"Pending":      pending(),
		"Claim":        assert.ErrOf(m.Claim(ctx, time.Second, []string{"1-0"})),
		"Fetch":        assert.ErrOf(m.Fetch(ctx, "1-0")),
		"Hold":         m.Hold(ctx, []string{"1-0"}, time.Second, false),
		"Ack":          assert.ErrOf(m.Ack(ctx, "1-0")),
		"AckAndDelete": m.AckAndDelete(ctx, "1-0"),
		"Bury":         assert.ErrOf(m.Bury(ctx, "1-0", Grave{Key: "dead"})),
		"Dismiss":      assert.ErrOf(m.Dismiss(ctx, time.Second)),
		"Leave":        m.Leave(ctx),
		"ReadDead":     assert.ErrOf(ReadDead(ctx, m.Client, "dead", "-", "+", 1)),
		"Lag":          assert.ErrOf(Lag(ctx, m.Client, "s", redis.XInfoGroup{Lag: -1})),
	} {
		if !HasCode(err, "LOADING") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestReplyThatNoScriptOfAGroupGivesIsAnError(t *testing.T) {
	t.Parallel()
	m, _ := answering(t, map[string]any{"fetch": []any{[]any{1}}, "deadletter": []any{}, "xrange": []any{[]any{"1-0"}}})
	ctx := t.Context()
	for name, err := range map[string]error{
		"Fetch":    assert.ErrOf(m.Fetch(ctx, "1-0", "2-0")),
		"Bury":     assert.ErrOf(m.Bury(ctx, "1-0", Grave{Key: "dead"})),
		"ReadDead": assert.ErrOf(ReadDead(ctx, m.Client, "dead", "-", "+", 1)),
	} {
		if err == nil || IsReply(err) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestLastIDIsThatOfTheLastEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entries []any
		want    string
	}{{[]any{}, "0"}, {[]any{scripted.Entry("7-1")}, "7-1"}} {
		m, _ := answering(t, map[string]any{"xrevrange": c.entries})
		got, err := LastID(t.Context(), m.Client, "s")
		assert.NoError(t, err, "LastID")
		assert.Equal(t, got, c.want, "the last of %v", c.entries)
	}
}

func TestGroupIsCreatedUnlessItExists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer  any
		created bool
	}{{scripted.Status("OK"), true}, {errors.New("BUSYGROUP Consumer Group name already exists"), false}} {
		m, _ := answering(t, map[string]any{"xgroup": c.answer})
		created, err := m.Create(t.Context(), "0")
		assert.NoError(t, err, "Create")
		assert.Equal(t, created, c.created, "created after %v", c.answer)
	}
}

func TestReadReturnsTheEntriesOfItsStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer any
		want   int
	}{{nil, 0}, {[]any{}, 0}, {[]any{[]any{"s", []any{scripted.Entry("1-0"), scripted.Entry("2-0")}}}, 2}} {
		m, _ := answering(t, map[string]any{"xreadgroup": func([]string) any { return c.answer }})
		read := m.NewRead(t.Context(), 5, -1)
		_ = m.Client.Process(t.Context(), read)
		entries, err := read.Entries()
		assert.NoError(t, err, "Entries")
		assert.Equal(t, len(entries), c.want, "entries of %v", c.answer)
	}
}

func TestPendingEntriesAreListedInPages(t *testing.T) {
	t.Parallel()
	var asked []string
	m, _ := answering(t, map[string]any{
		"xpending": func(cmd []string) any {
			asked = append(asked, strings.Join(cmd[3:], " "))
			return scripted.Status("QUEUED")
		},
		"exec": func([]string) any {
			rows, from := []any{}, 100*(len(asked)-1)
			for i := range min(100, 201-from) {
				rows = append(rows, scripted.Pending(strconv.Itoa(from+i)+"-10", time.Second, 1))
			}
			return []any{rows}
		},
	})
	pages := func(limit int) (sizes []int) {
		asked = nil
		for page, err := range m.Pending(t.Context(), "c") {
			assert.NoError(t, err, "a page")
			if sizes = append(sizes, len(page)); len(sizes) == limit {
				break
			}
		}
		return sizes
	}
	if got, want := pages(9), []int{100, 100, 1}; !slices.Equal(got, want) {
		t.Errorf("pages of %d, want %d", got, want)
	}
	if want := []string{"- + 100 c", "99-11 + 100 c", "199-11 + 100 c"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if got := pages(1); len(got) != 1 || len(asked) != 1 {
		t.Errorf("%d pages in %d requests, although the caller wants one", len(got), len(asked))
	}
}

func TestFetchedEntriesHaveTheirDeliveriesAndValues(t *testing.T) {
	t.Parallel()
	m, _ := answering(t, map[string]any{"fetch": []any{nil, []any{2}, []any{3, nil}, []any{4, []any{"a", "1", "b", "2"}}}})
	got, err := m.Fetch(t.Context(), "1-0", "2-0", "3-0", "4-0")
	assert.Must(t, err)
	want := []Fetched{{}, {Deliveries: 2}, {Deliveries: 3}, {Deliveries: 4, Values: map[string]any{"a": "1", "b": "2"}}}
	assert.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "the entries")
	one, server := answering(t, map[string]any{"fetch": []any{[]any{1, []any{"a", "1"}}}})
	if got, err := one.Fetch(t.Context(), "1-0"); err != nil || len(got) != 1 || got[0].Values["a"] != "1" {
		t.Errorf("one entry: %v, %v", got, err)
	}
	if got, err := one.Fetch(t.Context()); err != nil || len(got) != 0 || len(server.Heard("fetch")) != 1 {
		t.Errorf("no entry: %v, %v", got, err)
	}
}

func TestValueOfANameWithoutOneIsTheName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, fmt.Sprint(Values([]any{"a", "1", "b"})), fmt.Sprint(map[string]any{"a": "1", "b": "b"}), "the values")
}

func TestHeldEntriesAreSentInPages(t *testing.T) {
	t.Parallel()
	m, server := answering(t, map[string]any{"hold": 0})
	assert.Must(t, m.Hold(t.Context(), slices.Repeat([]string{"1-0"}, 201), 3*time.Second, true))
	var sizes []int
	for _, h := range server.Heard("hold") {
		assert.Equal(t, strings.Join(h.Cmd[1:7], " "), "1 s g c 3000 1", "the arguments")
		sizes = append(sizes, len(h.Cmd)-7)
	}
	assert.Equal(t, fmt.Sprint(sizes), "[100 100 1]", "entries in each request")
}

func TestAckReportsWhetherTheEntryWasPending(t *testing.T) {
	t.Parallel()
	for n, want := range []bool{false, true} {
		m, _ := answering(t, map[string]any{"xack": n})
		got, err := m.Ack(t.Context(), "1-0")
		assert.NoError(t, err, "Ack")
		assert.Equal(t, got, want, "the entry was pending after the reply %d", n)
	}
}

func TestEntryThatXackdelDoesNotDeleteIsDeletedByTheScript(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer             any
		commands, scripted int // of three entries
	}{
		{[]any{1}, 3, 0},
		{[]any{-1}, 3, 3},
		{[]any{2}, 3, 3},
		{errors.New("ERR unknown command 'xackdel'"), 1, 3},
		{errors.New("NOPERM no"), 1, 3},
	} {
		m, server := answering(t, map[string]any{"xackdel": c.answer, "acknowledge": 1})
		for range 3 {
			assert.NoError(t, m.AckAndDelete(t.Context(), "1-0"), "AckAndDelete")
		}
		assert.Equal(t, len(server.Heard("xackdel")), c.commands, "XACKDEL with the reply %v", c.answer)
		assert.Equal(t, len(server.Heard("acknowledge")), c.scripted, "scripts after the reply %v", c.answer)
	}
}

func TestConsumerLeavesAGroupThatIsGone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"NOGROUP no such group", "ERR Error running script: NOGROUP no such group"} {
		m, _ := answering(t, map[string]any{"dismiss": errors.New(text)})
		assert.NoError(t, m.Leave(t.Context()), "%s", text)
	}
	if err := errors.New("NOGROUP"); IsGone(err) || HasCode(err, "NOGROUP") || HasCode(nil, "NOGROUP") {
		t.Error("an error that no server has sent")
	}
}

func TestTakeoverIsSentAgainOnlyIfTheServerForgotTheScript(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer any
		evals  int
	}{{[]any{"1-0"}, 0}, {errors.New("NOSCRIPT no such script"), 1}} {
		m, server := answering(t, map[string]any{"takeover": c.answer, "eval": []any{"1-0"}})
		ids, err := m.Claim(t.Context(), 3*time.Second, []string{"1-0", "2-0"})
		if err != nil || !slices.Equal(ids, []string{"1-0"}) || len(server.Heard("eval")) != c.evals {
			t.Errorf("after the reply %v: %v, %v and %d times the text", c.answer, ids, err, len(server.Heard("eval")))
		}
		assert.Equal(t, strings.Join(server.Heard("takeover")[0].Cmd[1:], " "), "2 s {s}:taken g c 3000 1-0 2-0", "the call")
	}
}

func TestLagIsWhatTheServerCountsUnlessThereIsNoEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info   redis.XInfoGroup
		unread []any
		want   int64
		asked  string // "": not
	}{
		{redis.XInfoGroup{Lag: 1}, []any{scripted.Entry("6-0")}, 1, "0-1 + count 1"},
		{redis.XInfoGroup{Lag: 7, EntriesRead: 2, LastDeliveredID: "5-9"}, []any{}, 0, "5-10 + count 1"},
		{redis.XInfoGroup{Lag: 0, EntriesRead: 1}, nil, 0, ""},
		{redis.XInfoGroup{Lag: 0, LastDeliveredID: "5-9"}, []any{}, 0, "5-10 + count 1"},
		{redis.XInfoGroup{Lag: -1, EntriesRead: 3, LastDeliveredID: "5-9"}, []any{scripted.Entry("6-0")}, -1, "5-10 + count 1"},
		{redis.XInfoGroup{Lag: -1}, []any{}, 0, "0-1 + count 1"},
	} {
		m, server := answering(t, map[string]any{"xrange": c.unread})
		got, err := Lag(t.Context(), m.Client, "s", c.info)
		assert.NoError(t, err, "Lag")
		assert.Equal(t, got, c.want, "the lag of %+v", c.info)
		var asked string
		for _, h := range server.Heard("xrange") {
			asked = strings.Join(h.Cmd[2:], " ")
		}
		assert.Equal(t, asked, c.asked, "asked for %+v", c.info)
	}
}

func TestReasonIsCutBetweenTwoCharacters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1023)
	for text, want := range map[string]string{"": "", "short": "short", long + "yz": long + "y", long + "é": long} {
		assert.Equal(t, Reason(text), want, "the reason of %d bytes", len(text))
	}
}

func TestKeysBesideAStreamAreInItsSlot(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{"s": "{s}:dead", "{a}s": "{a}s:dead", "a}b": "{" + slot.Text(slot.Of("a}b")) + "}:a}b:dead"} {
		key := DeadLetterKey(stream)
		assert.Equal(t, key, want, "the key beside %s", stream)
		assert.Equal(t, slot.Of(key), slot.Of(stream), "the slot of %s", key)
	}
}
