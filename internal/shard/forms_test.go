package shard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReplyOfTheWrongLengthIsAnError(t *testing.T) {
	t.Parallel()
	none, one, two := int64(0), int64(1), int64(2)
	for name, replies := range map[string]struct{ right, wrong [][]any }{
		"rearm":      {[][]any{{"1", "d"}}, [][]any{{"1", ""}, {"1", "dd"}}},
		"discard":    {[][]any{{"1", "d"}}, [][]any{{"1", ""}, {"1", "dd"}}},
		"pause":      {[][]any{{"1", "d"}}, [][]any{{"1", ""}, {"1", "dd"}}},
		"reposition": {[][]any{{"1", "d"}}, [][]any{{"1", ""}, {"1", "dd"}}},
		"pauses":     {[][]any{{"1", none}, {"1", one, "d", "{}"}}, [][]any{{"1", one}, {"1", none, "d"}, {"1", one, "d"}, {"1", two, "d", "{}"}, {"1", one, "d", "no JSON"}}},
		"unhold":     {[][]any{{"1", one, ""}}, [][]any{{"1", one}, {"1", one, "", ""}}},
		"generation": {[][]any{{"1", one}}, [][]any{{"1", one, one}}},
		"claim":      {[][]any{{"1", "", "", none, none}}, [][]any{{"1", ""}, {"1", "", "", none}, {"1", "", "", none, none, "id"}}},
		"settle":     {[][]any{{"1", "", none, "s"}}, [][]any{{"1", "", none}, {"1", "", none, ""}, {"1", "", none, "ss"}, {"1", "", none, "s", "id"}}},
		"extend":     {[][]any{{"1", "l", one}}, [][]any{{"1", "l"}, {"1", "l", one, one}}},
		"list":       {[][]any{{"1", "", "", none}}, [][]any{{"1", "", ""}, {"1", "", "", none, "id"}}},
		"repair":     {[][]any{{"1", none, "0", []any{}}}, [][]any{{"1", none, "0"}, {"1", none, "0", []any{}, "kind"}}},
		"turn":       {[][]any{{"1", one, "5", ""}, {"1", one, "5", "x"}}, [][]any{{"1", one, "x", ""}, {"1", one, "5"}}},
		"sweep":      {[][]any{{"1", none, "5"}, {"1", int64(-1), "5"}}, [][]any{{"1", one, "5"}, {"1", none, "x"}, {"1", none}}},
		"due":        {[][]any{{"1", ""}, {"1", "2", "s", "1"}}, [][]any{{"1", "", "s"}}},
		"decide":     {[][]any{{"1", "fired"}}, [][]any{{"1", "fired", "fired"}}},
	} {
		for _, reply := range replies.right {
			s := replying{reply: reply}.scripts(t)
			if err := runs(t.Context(), s)[name]().err(); err != nil {
				t.Errorf("%s, whose reply is %v: %v", name, reply, err)
			}
		}
		for _, reply := range replies.wrong {
			s := replying{reply: reply}.scripts(t)
			done := runs(t.Context(), s)[name]()
			if done.err() == nil {
				t.Errorf("%s accepts %v", name, reply)
			}
			if !done.blank(name) && name != "pauses" { // which returns the time of the server
				t.Errorf("%s, whose reply is %v, returns %v", name, reply, done)
			}
		}
	}
}

func TestQuoteEscapesWhatIsNotPlainText(t *testing.T) {
	t.Parallel()
	if got, want := Quote("a '\\\n\x1f\x7f\xff~"), `'a \039\092\010\031\127\255~'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestArgumentsOfAnEventAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_767_225_600_123)
	for want, e := range map[string]Event{
		"[1  x]":              {ID: "1", Body: []byte("x")},
		"[1  +x]":             {ID: "1", Body: []byte("x"), Given: true},
		"[1 k%25%00%2500 x]":  {ID: "1", Body: []byte("x"), Key: "%\x00%00"},
		"[1 a1767225600123 ]": {ID: "1", Body: []byte{}, At: at},
	} {
		args := e.Append(nil, true)
		raw, err := args[2].(interface{ MarshalBinary() ([]byte, error) }).MarshalBinary()
		text := []string{*args[0].(*string), args[1].(string), string(raw)}
		if got := fmt.Sprint(text); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		if got := ReadEvent(text[0], text[1], text[2]); !reflect.DeepEqual(got, e) {
			t.Errorf("%+v, want %+v", got, e)
		}
	}
}

func TestFirstFailureIsTheOldestOfTheCurrentAttempts(t *testing.T) {
	t.Parallel()
	failures := func(attempts ...int) (all []Failure) {
		for i, n := range attempts {
			all = append(all, Failure{At: time.UnixMilli(int64(100 - i)), Attempt: n})
		}
		return all
	}
	for _, c := range []struct {
		row  Listed
		want int64 // 0: none
	}{
		{Listed{Attempts: 3}, 0},
		{Listed{Attempts: 3, Failures: failures(3, 2, 1)}, 98},
		{Listed{Attempts: 3, Lease: "l", Failures: failures(2, 1)}, 99},
		{Listed{Attempts: 3, Lease: "l", Failures: failures(3, 2, 1)}, 0}, // of the attempts before a re-arm
		{Listed{Attempts: 2, Failures: failures(2, 1, 5, 4)}, 99},
		{Listed{Attempts: 2, Failures: failures(2, 2)}, 100},
		{Listed{Attempts: 0, Failures: failures(1)}, 0},
	} {
		if got := firstFailure(c.row); got.IsZero() != (c.want == 0) || c.want != 0 && got.UnixMilli() != c.want {
			t.Errorf("%+v: %v, want %d", c.row, got, c.want)
		}
	}
}

func TestScoreThatIsNoTimeIsZero(t *testing.T) {
	t.Parallel()
	for score, want := range map[string]time.Time{
		"": {}, "x": {}, "inf": {}, "-inf": {}, "nan": {},
		"0": time.UnixMilli(0), "1767225600000.5": time.UnixMilli(1_767_225_600_000), "-8232774400000": time.UnixMilli(1_767_225_600_000),
	} {
		if got := when(score); !got.Equal(want) || got.IsZero() != want.IsZero() {
			t.Errorf("%q: %v, want %v", score, got, want)
		}
	}
}

func TestHistoryOmitsLinesThatAreNoFailures(t *testing.T) {
	t.Parallel()
	want := []Failure{{time.UnixMilli(12), 10, "timeout", "it took too long"}, {time.UnixMilli(11), 9, "c", ""}}
	if got := history("12 10 timeout it took too long\n\nno failure either\n11 9 c "); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOnlyNamesOfALibraryKeyBelongToAShard(t *testing.T) {
	t.Parallel()
	s := New(replying{}.scripts(t).runner, Constants{Namespace: "shop"})
	home := s.Shard(7)
	prefix := strings.TrimSuffix(home.Void, keyVoid)
	for name, owns := range map[string]bool{
		"void": true, "inbox:a": true, "body:x": true, "history:10s:5": true, "stream": true, "orders": false, "inbox": false, "": false,
	} {
		if home.Owns(prefix+name) != owns || home.Owns("other"+prefix+name) {
			t.Errorf("owns %q: %t", name, !owns)
		}
		if inbox, ok := InboxOf(prefix + name); ok != owns || inbox != prefix+keyInboxA {
			t.Errorf("%q: %s, %t", name, inbox, ok)
		}
	}
	tag := strings.TrimSuffix(strings.TrimPrefix(prefix, "shop:{"), "}:")
	for key, want := range map[string]string{
		prefix + "inbox:a": "shop", "a:b:{" + tag + "}:inbox:a": "a:b",
		prefix + "inbox:b": "", ":{" + tag + "}:inbox:a": "", "shop:{no slot}:inbox:a": "", "shop:" + tag + "}:inbox:a": "",
	} {
		if got, ok := NamespaceOf(key); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t; want %q", key, got, ok, want)
		}
	}
}

func TestSettlementsHaveTheSentEventsFirstWithTheSizeOfTheirBodies(t *testing.T) {
	t.Parallel()
	const mark = "=11f6ad8ec52a2984abaafd7c3b516503785c2072" // of x
	given, derived := Settlement{ID: "g", What: "sent", Body: []byte("x"), Given: true}, Settlement{ID: "d", What: "sent", Body: []byte("yz")}
	unread := Settlement{ID: "u", What: "sent", Given: true}
	failed := Settlement{ID: "f", What: "failed", Lease: "l", Number: 0.5, Class: "c", Error: strings.Repeat("e", 1025)}
	for _, c := range []struct {
		how   Settling
		batch []Settlement
		want  string
		order []int
	}{
		{Settling{}, []Settlement{failed, derived, given}, "[0 0 0 0 0 0 0 1 1 4 g " + mark + " d f failed l 0.5 c " + strings.Repeat("e", 1024) + "]", []int{2, 1, 0}},
		{Settling{Retention: -1}, []Settlement{given}, "[0 0 0 -1 0 0 0 0 1 2 g]", []int{0}},
		{Settling{Retention: time.Second, KeepBody: true}, []Settlement{given, unread}, "[0 0 0 1000 1 0 0 0 2  g u]", []int{0, 1}},
		{Settling{Attempts: 3, Base: 4e6, Cap: 5e6, Continues: true, Lease: 6e6}, []Settlement{derived}, "[3 4 5 0 0 1 6 0 1 2 d]", []int{0}},
	} {
		args, order := c.how.args(c.batch)
		for i, arg := range args {
			if id, ok := arg.(*string); ok {
				args[i] = *id
			}
		}
		if got := fmt.Sprint(args); got != c.want || !slices.Equal(order, c.order) {
			t.Errorf("%s, %v; want %s, %v", got, order, c.want, c.order)
		}
	}
}

func TestTimeUntilTheNextOneIsNegativeOnlyIfThereIsNone(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]time.Duration{"": -1, "900": 0, "1000": 0, "1500": 500 * time.Millisecond} {
		s := replying{reply: []any{"1000", next, "", int64(0), int64(0)}}.scripts(t)
		if claim, err := s.Claim(t.Context(), s.Shard(1), Claiming{}); err != nil || claim.Next != want {
			t.Errorf("claim, next at %q: %v, %v; want %v", next, claim.Next, err, want)
		}
		s = replying{reply: []any{"1000", next}}.scripts(t)
		if _, wait, err := s.DueTimers(t.Context(), s.Shard(1), 0, 1); err != nil || wait != want {
			t.Errorf("timers, next at %q: %v, %v; want %v", next, wait, err, want)
		}
	}
}
