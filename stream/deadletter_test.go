package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

const logDead = "stream: entry dead-lettered"

func (f *fixture) dead(t *testing.T) []stream.DeadLetter {
	t.Helper()
	var all []stream.DeadLetter
	for dead, err := range stream.DeadLetters(t.Context(), f.client, stream.DeadLetterKey(f.key)) {
		redistest.Must(t, err)
		all = append(all, dead)
	}
	return all
}

func TestDeadLetterKeyIsInTheSlotOfItsStream(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"orders": "{orders}:dead", "{shop}:orders": "{shop}:orders:dead", "a{b}c": "a{b}c:dead",
		"a}b": "", "{}": "", "a{}b": "", "{": "", "}{": "", "": "",
	} {
		got := stream.DeadLetterKey(key)
		if slot.Of(got) != slot.Of(key) || !strings.HasSuffix(got, ":dead") || want != "" && got != want {
			t.Errorf("the key of %q is %q, want %q in its slot", key, got, want)
		}
	}
}

func FuzzDeadLetterKey(f *testing.F) {
	f.Add("orders")
	f.Add("{}}{")
	f.Fuzz(func(t *testing.T, key string) {
		if got := stream.DeadLetterKey(key); got == key || slot.Of(got) != slot.Of(key) {
			t.Errorf("the key of %q is %q, in another slot", key, got)
		}
	})
}

func TestEntryBecomesADeadLetterAfterMaxDeliveries(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		ids := f.add(t, "bad", "good")
		cfg := f.config()
		cfg.MaxDeliveries, cfg.Consumer = 3, "me"
		sub := f.subscribe(t, cfg)
		begun := time.Now()
		for tries := 0; tries < 3; {
			msg := sub.next(t)
			if string(msg.Data) == "good" {
				msg.Ack()
				continue
			}
			tries++
			msg.Nack(fmt.Errorf("attempt %d", tries))
		}
		f.wantPending(t, 0)
		f.logs.want(t, logDead, 1)
		if got := sub.Stats(); got.Delivered != 4 || got.DeadLettered != 1 {
			t.Errorf("stats are %+v, want three deliveries of the bad one", got)
		}
		all := f.dead(t)
		if len(all) != 1 {
			t.Fatalf("dead letters are %+v, want one", all)
		}
		got := all[0]
		for _, at := range []time.Time{got.First, got.Last} {
			if at.Before(begun.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("delivered first at %v and last at %v, want in this test", got.First, got.Last)
			}
		}
		if got.First.After(got.Last) {
			t.Errorf("first %v is after last %v", got.First, got.Last)
		}
		want := stream.DeadLetter{
			ID: got.ID, Stream: f.key, Entry: ids[0], Group: "shop", Consumer: "me", Reason: "attempt 3", Deliveries: 3,
			First: got.First, Last: got.Last, Values: map[string]any{"type": "order.placed", "data": "bad"},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestEntryThatKillsItsConsumersBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	f := newFixture(t, server.Client(t))
	f.add(t, "poison")
	for range 2 {
		killedConsumer(t, server.Addr(), f.key, "shop", 1)
		p := f.pending(t)[0]
		redistest.Must(t, f.client.Do(t.Context(), "xclaim", f.key, "shop", p.Consumer, 0, p.ID, "idle", 2*time.Minute.Milliseconds(), "justid").Err())
	}
	if n := f.pending(t)[0].RetryCount; n != 2 {
		t.Fatalf("%d deliveries, want 2", n)
	}
	cfg := f.config()
	cfg.MaxDeliveries, cfg.MaxIdleTime = 2, time.Minute
	f.add(t, "good")
	sub := f.subscribe(t, cfg)
	wantData(t, sub.next(t), "good")
	f.logs.want(t, logDead, 1)
	all := f.dead(t)
	if len(all) != 1 || !strings.Contains(all[0].Reason, "delivered 2 times and never settled") || all[0].Last.After(time.Now().Add(-time.Minute)) {
		t.Errorf("dead letters are %+v", all)
	}
}

func TestNamedConsumerDeadLettersEntriesOfItsEarlierRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "poison", "good")
	f.takeAs(t, "me", 2)
	cfg := f.config()
	cfg.Consumer, cfg.MaxDeliveries = "me", 2
	sub := f.subscribe(t, cfg)
	sub.next(t).Release() // the second delivery
	sub.next(t).Ack()
	sub.stop()
	run(t, sub.Subscriber)
	f.wantPending(t, 0)
	if all := f.dead(t); len(all) != 1 || all[0].Values["data"] != "poison" || all[0].Deliveries != 2 {
		t.Errorf("dead letters are %+v", all)
	}
}

func TestMalformedAndRefusedEntriesBecomeDeadLettersAtOnce(t *testing.T) {
	t.Parallel()
	for _, malformed := range []bool{true, false} {
		t.Run(fmt.Sprintf("malformed %v", malformed), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.add(t, "bad")
			cfg := f.config()
			cfg.DeadLetter = stream.DeadLetterKey(f.key)
			cfg.Unmarshal = func(id string, values map[string]any) (*message.RawMessage, error) {
				if malformed && values["data"] == "bad" {
					return nil, errBusy
				}
				return stream.Unmarshal(id, values)
			}
			sub := f.subscribe(t, cfg)
			if !malformed {
				sub.next(t).Nack(message.Permanent(errBusy))
			}
			f.logs.want(t, logDead, 1)
			f.wantPending(t, 0)
			all := f.dead(t)
			if len(all) != 1 || all[0].Reason != errBusy.Error() || all[0].Deliveries != 1 || all[0].Values["data"] != "bad" {
				t.Errorf("dead letters are %+v", all)
			}
			for range 30 {
				f.add(t, "good")
				sub.next(t).Ack() // its place is released
			}
		})
	}
}

// member returns a member of the fixture's group.
func (f *fixture) member(consumer string) *group.Member {
	return &group.Member{Client: f.client, Stream: f.key, Group: "shop", Consumer: consumer}
}

func TestDeadLetterHasTheTimesOfItsFirstAndItsLastDelivery(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		id := f.add(t, "a")[0]
		f.takeAs(t, "me", 1)
		grave := group.Grave{Key: stream.DeadLetterKey(f.key), Reason: "why", Consumer: "you", First: time.Now().Add(-3 * time.Hour), Last: time.Now().Add(-time.Hour)}
		outcome, err := f.member("me").Bury(t.Context(), id, grave)
		if outcome != group.Moved || err != nil {
			t.Fatal(outcome, err)
		}
		got := f.dead(t)[0]
		if first, last := got.First.Sub(grave.First), got.Last.Sub(grave.Last); first.Abs() > time.Hour || last.Abs() > time.Hour || got.Consumer != "you" {
			t.Errorf("%+v, want %+v", got, grave)
		}
	})
}

func TestEntryOfAGroupThatIsGoneIsNotDeadLettered(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		id := f.add(t, "a")[0]
		bury := func() (group.Outcome, error) {
			return f.member("me").Bury(t.Context(), id, group.Grave{Key: stream.DeadLetterKey(f.key)})
		}
		if outcome, err := bury(); outcome != group.Lost || err != nil {
			t.Errorf("without a group: %q, %v", outcome, err)
		}
		redistest.Must(t, client.Del(t.Context(), f.key).Err())
		redistest.Must(t, client.Set(t.Context(), f.key, "no stream", time.Hour).Err())
		if outcome, err := bury(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("no stream: %q, %v", outcome, err)
		}
		if all := f.dead(t); len(all) > 0 {
			t.Errorf("dead letters are %+v", all)
		}
	})
}

func TestFormerOwnerDeadLettersNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	id := f.add(t, "a")[0]
	cfg := f.config()
	cfg.MaxDeliveries = 1
	sub := f.subscribe(t, cfg)
	msg := sub.next(t)
	redistest.Must(t, f.client.XClaimJustID(t.Context(), &redis.XClaimArgs{Stream: f.key, Group: "shop", Consumer: "other", Messages: []string{id}}).Err())
	msg.Nack(errBusy)
	f.logs.want(t, "stream: refused entry claimed by another consumer", 1)
	if p := f.pending(t); len(p) != 1 || p[0].Consumer != "other" || len(f.dead(t)) != 0 {
		t.Errorf("pending %+v, dead %+v, want it with its new owner", p, f.dead(t))
	}
}

func TestEntryIsDeadLetteredOnceDespiteFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func() respproxy.Action{
		"cut request": respproxy.CutRequest, "cut reply": respproxy.CutReply, "lost reply": respproxy.DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			proxy := redistest.Proxy(t, server.Addr())
			f := newFixture(t, redistest.Client(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = -1; o.ReadTimeout = time.Second }))
			f.add(t, "a")
			cfg := f.config()
			cfg.MaxDeliveries = 1
			sub := f.subscribe(t, cfg)
			msg := sub.next(t)
			proxy.Next(1, func(cmd []string) bool {
				return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") && len(cmd) > 7 && cmd[8] == errBusy.Error()
			}, fault())
			msg.Nack(errBusy)
			f.wantPending(t, 0)
			if n := len(f.dead(t)); n != 1 {
				t.Errorf("%d dead letters, want 1", n)
			}
			if d := sub.Stats().Delivered; d != 1 {
				t.Errorf("%d deliveries, want 1: an entry whose dead letter failed must not be delivered again", d)
			}
		})
	}
}

func TestEntryStaysUntilTheDeadLetterStreamAcceptsIt(t *testing.T) {
	t.Parallel()
	f := shared(t)
	dead := stream.DeadLetterKey(f.key)
	redistest.Must(t, f.client.Set(t.Context(), dead, "no stream", time.Minute).Err())
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxDeliveries = 1
	sub := f.subscribe(t, cfg)
	sub.next(t).Nack(errBusy)
	f.logs.want(t, logFails, 1)
	f.wantPending(t, 1)
	redistest.Must(t, f.client.Del(t.Context(), dead).Err())
	f.wantPending(t, 0)
	if n := len(f.dead(t)); n != 1 || sub.Stats().Delivered != 1 {
		t.Errorf("%d dead letters after %d deliveries, want one each", n, sub.Stats().Delivered)
	}
	f.logs.want(t, logWorks, 1)
}

func TestReasonOfADeadLetterIsCutAtARune(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a")
	cfg := f.config()
	cfg.MaxDeliveries = 1
	f.subscribe(t, cfg).next(t).Nack(errors.New("x" + strings.Repeat("é", 600)))
	f.wantPending(t, 0)
	if reason := f.dead(t)[0].Reason; len(reason) != 1023 || !strings.HasSuffix(reason, "é") {
		t.Errorf("the reason has %d bytes and ends with %q", len(reason), reason[len(reason)-3:])
	}
}

func TestPutBackRestoresEntriesUnchanged(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		f := newFixture(t, client)
		// A duplicate field, and one that looks like the reader's own.
		odd := []any{"dead-reason", "mine", "data", "odd", "x", "1", "x", "2"}
		redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: odd}).Err())
		f.add(t, "a", "b", "c")
		cfg := f.config()
		cfg.MaxDeliveries = 1
		sub := f.subscribe(t, cfg)
		for range 4 {
			sub.next(t).Nack(errBusy)
		}
		f.wantPending(t, 0)
		sub.stop()
		key := stream.DeadLetterKey(f.key)
		all := f.dead(t)
		if len(all) != 4 || all[0].Reason != errBusy.Error() || all[0].Values["dead-reason"] != "mine" {
			t.Fatalf("dead letters are %+v", all)
		}
		n, err := stream.PutBack(t.Context(), f.client, key, all[0].ID, "1-1")
		if err != nil || n != 1 {
			t.Fatalf("put back %d, error %v, want one", n, err)
		}
		last, err := f.client.Do(t.Context(), "xrevrange", f.key, "+", "-", "count", 1).Slice()
		redistest.Must(t, err)
		if got := last[0].([]any)[1]; fmt.Sprint(got) != fmt.Sprint(odd) {
			t.Errorf("came back as %v, want %v", got, odd)
		}
		foreign, err := f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []any{"a", "b"}}).Result()
		redistest.Must(t, err)
		if _, err := stream.PutBack(t.Context(), f.client, key, foreign); !errors.Is(err, stream.ErrNotDeadLetter) {
			t.Errorf("error is %v, want ErrNotDeadLetter", err)
		}
		if n, err := stream.PutBackAll(t.Context(), f.client, key); n != 3 || err != nil {
			t.Errorf("put back %d, error %v, want 3", n, err)
		}
		if left := f.client.XLen(t.Context(), key).Val(); left != 1 {
			t.Errorf("%d left, want what is no dead letter", left)
		}
		cfg.MaxDeliveries = 0
		again := f.subscribe(t, cfg)
		var got []string
		for range 4 {
			msg := again.next(t)
			got = append(got, string(msg.Data))
			msg.Ack()
		}
		if !slices.Equal(got[1:], []string{"a", "b", "c"}) {
			t.Errorf("came back: %q", got)
		}
		if n, err := stream.PutBackAll(t.Context(), f.client, f.key+"none"); n != 0 || err != nil {
			t.Errorf("of no stream %d came back, error %v", n, err)
		}
	})
}

func TestPutBackAllEndsThoughPoisonComesBackAtOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, numbers(120)...)
	cfg := f.config()
	cfg.MaxDeliveries, cfg.BatchSize = 1, 50
	sub := f.subscribe(t, cfg)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		for msg := range sub.ch {
			msg.Nack(errBusy)
		}
	}()
	t.Cleanup(func() { <-refused })
	t.Cleanup(sub.cancel)
	eventually(t, func() bool { return sub.Stats().DeadLettered == 120 }, func() string { return "not all refused" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if n, err := stream.PutBackAll(ctx, f.client, stream.DeadLetterKey(f.key)); n != 120 || err != nil {
		t.Errorf("put back %d, error %v, want 120", n, err)
	}
}

func TestUnreceivedMessagesAreReturnedAndNotCountedAsDeliveries(t *testing.T) {
	t.Parallel()
	f := shared(t)
	f.add(t, "a", "b")
	cfg := f.config()
	cfg.MaxDeliveries = 1
	for range 3 {
		sub := f.subscribe(t, cfg)
		eventually(t, func() bool { return len(sub.ch) == 2 }, func() string { return "no messages in the channel" })
		sub.cancel()
		eventually(t, func() bool {
			p := f.pending(t)
			return p[0].RetryCount == 0 && p[1].RetryCount == 0
		}, func() string { return "deliveries were counted" })
		sub.stop()
	}
	sub := f.subscribe(t, cfg)
	sub.next(t).Ack()
	sub.next(t).Ack()
	f.wantPending(t, 0)
	if all := f.dead(t); len(all) != 0 {
		t.Errorf("dead letters are %+v", all)
	}
}

// letters adds dead letters of a stream, and an entry that is none for each empty text. It returns their ids.
func (f *fixture) letters(t *testing.T, data ...string) []string {
	t.Helper()
	var ids []string
	for _, d := range data {
		fields := []string{"data", "foreign"}
		if d != "" {
			fields = group.Dead{Stream: f.key, Entry: "1-1", Group: "shop", Fields: []string{"data", d}}.Write()
		}
		id, err := f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream.DeadLetterKey(f.key), Values: fields}).Result()
		redistest.Must(t, err)
		ids = append(ids, id)
	}
	return ids
}

func TestEntriesThatAreNoDeadLettersAreListedAndSkipped(t *testing.T) {
	t.Parallel()
	f := shared(t)
	key := stream.DeadLetterKey(f.key)
	f.letters(t, "", "a", "")
	for i := range 12 { // more than a page, which ends with one of them
		f.letters(t, "", "b", "b", "b", "b", "b", "b", "")
		if i == 11 {
			f.letters(t, "c", "")
		}
	}
	letters, foreign := 0, 0
	for dead, err := range stream.DeadLetters(t.Context(), f.client, key) {
		switch {
		case dead.ID == "":
			t.Errorf("no id, %v", err)
		case errors.Is(err, stream.ErrNotDeadLetter):
			foreign++
		default:
			redistest.Must(t, err)
			letters++
		}
	}
	if letters != 74 || foreign != 27 {
		t.Errorf("listed %d dead letters and %d others, want 74 and 27", letters, foreign)
	}
	if n, err := stream.PutBackAll(t.Context(), f.client, key); n != 74 || err != nil {
		t.Errorf("put back %d, error %v, want 74", n, err)
	}
	if left := f.client.XLen(t.Context(), key).Val(); left != 27 {
		t.Errorf("%d are left, want 27", left)
	}
}

func TestPutBackStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ids := f.letters(t, "a", "b", "", "c")
	if n, err := stream.PutBack(t.Context(), f.client, stream.DeadLetterKey(f.key), ids...); n != 2 || !errors.Is(err, stream.ErrNotDeadLetter) {
		t.Errorf("put back %d, error %v, want 2 and ErrNotDeadLetter", n, err)
	}
	if got := len(f.entries(t)); got != 2 {
		t.Errorf("%d entries came back, want 2", got)
	}
}

// TestPutBackAllComparesIDsAsNumbers has ids whose order as text differs.
func TestPutBackAllComparesIDsAsNumbers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	key := stream.DeadLetterKey(f.key)
	for _, id := range []string{"9-9", "9-10", "10-1"} {
		fields := group.Dead{Stream: f.key, Entry: "1-1", Group: "shop", Fields: []string{"data", id}}.Write()
		redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: id, Values: fields}).Err())
	}
	if n, err := stream.PutBackAll(t.Context(), f.client, key); n != 3 || err != nil {
		t.Errorf("put back %d, error %v, want 3", n, err)
	}
}
