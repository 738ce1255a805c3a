package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// TestEveryChangeIsShownFirstAndNeedsYes runs each command of the table that changes something.
func TestEveryChangeIsShownFirstAndNeedsYes(t *testing.T) {
	t.Parallel()
	changes := map[string]struct {
		words   []string
		shows   string
		dryRun  int // the status of --dry-run
		without bool
	}{
		"events retry":      {words: []string{"later", "--reason", "r", "--as", "a"}, shows: "with --yes it would retry 1 event now"},
		"events reschedule": {words: []string{"later", "--at", "2100-01-01T00:00:00Z", "--reason", "r", "--as", "a"}, shows: "with --yes it would reschedule 1 event to 2100-01-01T00:00:00Z"},
		"events cancel":     {words: []string{"--all", "--reason", "r", "--as", "a"}, shows: "with --yes it would cancel 1 event"},
		"events park":       {words: []string{"--destination", "post", "--reason", "r", "--as", "a"}, shows: "with --yes it would park 1 event"},
		"events discard":    {words: []string{"plain", "--reason", "r", "--as", "a"}, shows: "with --yes it would discard 1 event for good"},
		"parked rearm":      {words: []string{"1", "--as", "a"}, shows: "with --yes it would re-arm 1 event"},
		"parked discard":    {words: []string{"--class", "network", "--reason", "r", "--as", "a"}, shows: "with --yes it would discard 1 event for good"},
		"parked import":     {words: []string{"-", "--as", "a"}, shows: "with --yes it would import 1 event"},
		"inbox forget":      {words: []string{"begun", "--aggregate", "a", "--scope", "transact", "--source", "", "--reason", "r", "--as", "a"}, shows: "with --yes it would forget the message begun"},
		"inbox rewind":      {words: []string{"--handler", "count", "--source", "kafka://orders", "--partition", "3", "--to", "0", "--reason", "r", "--as", "a"}, shows: "with --yes it would set 1 position of kafka://orders"},
		"pause":             {words: []string{"bank", "--reason", "r", "--for", "1h", "--as", "a"}, shows: "with --yes it would pause bank for 1h0m0s"},
		"resume":            {words: []string{"mail", "--as", "a"}, shows: "with --yes it would resume mail"},
		"repair":            {words: []string{"--retention", "24h"}, shows: "with --yes it would settle 1 finding", dryRun: 1},
		"keys rename":       {shows: "with --yes it would rename 1 key", without: true},
		"dead retry":        {words: []string{"MAILS", "--text", "why", "--reason", "r", "--as", "a"}, shows: "with --yes it would put 1 dead letter back"},
		"dead discard":      {words: []string{"MAILS", "--all", "--reason", "r", "--as", "a"}, shows: "with --yes it would discard 1 dead letter for good"},
		"dead import":       {words: []string{"MAILS", "-", "--reason", "r", "--as", "a"}, shows: "with --yes it would import 1 dead letter"},
	}
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		mails := "{" + s.namespace + "}:mails"
		dump := func() redistest.State {
			t.Helper()
			state, err := redistest.Dump(redistest.Soon(t), client, s.namespace+":*", "old-"+s.namespace+":*", "{"+s.namespace+"}*")
			redistest.Must(t, err)
			return state
		}
		for _, v := range verbs() {
			if !v.changes {
				continue
			}
			c, ok := changes[v.name]
			if !ok {
				t.Errorf("luatx %s is not tested", v.name)
				continue
			}
			// Data for all of the commands.
			s.acts(0, lines("network", "1", "2"), "parked", "import", "-", "--yes")
			s.acts(0, "", "pause", "mail", "--reason", "r", "--yes")
			s.source(client).deliver("a", "0001")
			scripts, n := link.Of(s.service(client)).Scripts, slotOf(t, s.service(client), "a")
			client.ZAdd(t.Context(), scripts.Shard(n).Key("pending"), redis.Z{Score: 1, Member: "ghost"})
			_, err := s.service(client).Enqueue(redistest.Soon(t), "a",
				luatx.Event{ID: "later", At: time.Now().Add(time.Hour), Body: []byte(`{"specversion":"1.0","id":"later","source":"/s","type":"t"}`)},
				luatx.Event{ID: "plain", Body: []byte(`{"specversion":"1.0","id":"plain","source":"/s","type":"t","destination":"post"}`)})
			redistest.Must(t, err)
			client.Set(t.Context(), "old-"+s.namespace+":7:balance", 1, 0)
			redistest.Must(t, client.Del(t.Context(), stream.DeadLetterKey(mails)).Err())
			giveUp(t, client, mails, "g", "why", 1)
			words, site := slices.Concat(strings.Fields(v.name), c.words), s
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "MAILS", mails)
			}
			if c.without {
				site.flags = slices.Concat(s.flags[:2], []string{"--keyspace", "own", "--prefix", s.namespace, "--pattern", "old-" + s.namespace + ":*", "--map", "old-" + s.namespace + ":{id}:{part}"})
			}
			input := lines("network", "new of "+v.name)
			if v.name == "dead import" {
				input = fmt.Sprintf(`{"stream":%q,"id":"1-1","fields":["a","b"]}`, mails)
			}
			before := dump()
			site.has(site.run(2, input, words...), "nothing was changed; "+c.shows)
			site.run(c.dryRun, input, append(words, "--dry-run")...)
			site.has(site.run(2, input, append(words, "--dry-run", "--yes")...), "are both set")
			if diff := redistest.Diff(before, dump()); diff != "" {
				t.Errorf("luatx %s without --yes has changed\n%s", v.name, diff)
			}
			site.run(0, input, append(words, "--yes")...)
			if redistest.Diff(before, dump()) == "" {
				t.Errorf("luatx %s --yes has changed nothing", v.name)
			}
		}
	})
}

func slotOf(t *testing.T, tr *luatx.Transactor, aggregate string) int {
	t.Helper()
	n, err := outbox.NewStore(tr).Slot(aggregate)
	redistest.Must(t, err)
	return n
}

func TestIDParkedInSeveralSlotsIsListedAndSlotChooses(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		var slots []int
		for i := 0; len(slots) < 3; i++ {
			aggregate := fmt.Sprint("aggregate-", i)
			if n := slotOf(t, tr, aggregate); !slices.Contains(slots, n) {
				slots = append(slots, n)
				s.acts(0, strings.Replace(lines("network", "7"), `"aggregate":"a"`, `"aggregate":"`+aggregate+`"`, 1), "parked", "import", "-", "--yes")
			}
		}
		slices.Sort(slots)
		for _, words := range [][]string{{"rearm", "7", "--yes"}, {"rearm", "7"}, {"discard", "7", "--reason", "r", "--yes"}} {
			text := s.acts(2, "", append([]string{"parked"}, words...)...)
			s.has(text, fmt.Sprintf(`the id "7" is parked in the slots %d, %d, %d: choose slots with --slot, once or more`, slots[0], slots[1], slots[2]))
			for _, n := range slots {
				s.has(text, fmt.Sprintf("%d 7 parked", n))
			}
		}
		want := func(n int) {
			t.Helper()
			found := 0
			for _, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{}) {
				redistest.Must(t, err)
				found++
			}
			if found != n {
				t.Errorf("%d events are parked, want %d", found, n)
			}
		}
		want(3)
		s.has(s.acts(2, "", "parked", "rearm", "7", "--slot", fmt.Sprint(slots[1])), "it would re-arm 1 event")
		s.has(s.acts(0, "", "parked", "rearm", "7", "--slot", fmt.Sprint(slots[1]), "--yes"), "1 1 0")
		want(2)
		shown := s.run(0, "", "parked", "show", "7", "--slot", fmt.Sprint(slots[1]))
		if s.has(shown, "state pending"); strings.Contains(shown, "state parked") {
			t.Errorf("other slots are shown: %s", shown)
		}
		s.has(s.acts(1, "", "parked", "rearm", "7", "8", "--slot", fmt.Sprint(slots[0]), "--yes"), "1 of 2 were re-armed; no parked event has the id 8")
		want(1)
		s.has(s.acts(0, "", "parked", "discard", "7", "--reason", "r", "--yes"), "1 1") // it is in one slot now
		want(0)
		s.has(s.acts(1, "", "parked", "discard", "7", "--reason", "r"), "no parked event has the id 7")
	})
}

func TestEventFlagSelectsEventsOfSeveralSlotsEachInItsOwn(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		tr := s.service(client)
		one, other := "a", ""
		for i := 0; other == ""; i++ {
			if aggregate := fmt.Sprint("aggregate-", i); slotOf(t, tr, aggregate) != slotOf(t, tr, one) {
				other = aggregate
			}
		}
		for _, aggregate := range []string{one, other} {
			s.acts(0, strings.ReplaceAll(lines("network", "7", "8"), `"aggregate":"a"`, `"aggregate":"`+aggregate+`"`), "parked", "import", "-", "--yes")
		}
		name := func(aggregate, id string) string { return fmt.Sprintf("%d:%s", slotOf(t, tr, aggregate), id) }
		s.has(s.acts(2, "", "parked", "rearm", "--event", "7"), "use slot:id")
		s.has(s.acts(2, "", "parked", "rearm", "--event", "16384:7"), "use slot:id")
		s.has(s.acts(0, "", "parked", "rearm", "--event", name(one, "7"), "--event", name(other, "8"), "--yes"), "2 2 0")
		left := map[string]bool{}
		for e, err := range outbox.NewStore(tr).Parked(redistest.Soon(t), outbox.Filter{}) {
			redistest.Must(t, err)
			left[e.Name().String()] = true
		}
		if len(left) != 2 || !left[name(one, "8")] || !left[name(other, "7")] {
			t.Errorf("parked events: %v", left)
		}
		s.has(s.acts(1, "", "parked", "rearm", "--event", name(one, "7"), "--event", name(other, "7"), "--yes"), "1 of 2 were re-armed; no parked event has the id "+name(one, "7"))
	})
}

func TestFirstWordListsItsCommands(t *testing.T) {
	t.Parallel()
	for word, second := range map[string]string{"parked": "rearm", "inbox": "forget", "keys": "rename"} {
		status, out, errs := run(t.Context(), "", word)
		if status != statusUsage || out != "" {
			t.Errorf("luatx %s: status %d, prints %s", word, status, out)
		}
		has(t, errs, "the command is incomplete", "luatx "+word+" "+second)
	}
}

func TestHelpExplainsExitStatusesAndConfirmation(t *testing.T) {
	t.Parallel()
	_, out, _ := run(t.Context(), "", "help")
	has(t, out, confirmation)
	for _, s := range statuses {
		has(t, out, fmt.Sprintf("%-4d%s", s.code, s.means))
	}
	for _, v := range verbs() {
		status, out, errs := run(t.Context(), "", append([]string{"help"}, strings.Fields(v.name)...)...)
		if status != statusFine || errs != "" || strings.Contains(out, confirmation) != v.changes || strings.Contains(out, "-yes") != (v.changes || v.name == "bench") {
			t.Errorf("luatx help %s: status %d, %s%s", v.name, status, out, errs)
		}
		if v.one != "" {
			has(t, out, "The exit status is 1 "+v.one)
		}
	}
}

func TestInterruptedCommandHasItsStatus(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := newSite(t, server.Addr()).begin(server.Client(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if status, _, _ := run(ctx, "", append([]string{"stats"}, s.flags...)...); status != statusInterrupted {
		t.Errorf("status %d", status)
	}
}
