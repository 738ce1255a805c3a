package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/stream"
)

// add adds entries of a type to a stream.
func add(t testing.TB, client redis.UniversalClient, key, kind string, n int) {
	t.Helper()
	for i := range n {
		redistest.Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: key, Values: []string{
			"ce_specversion", "1.0", "ce_id", fmt.Sprint(kind, i), "ce_type", kind, "ce_source", "/shop", "data", fmt.Sprintf(`{"n":%d}`, i),
		}}).Err())
	}
}

// consume lets a group read a stream until stop. An entry for which handle returns an error becomes a dead letter at once.
func consume(t testing.TB, client redis.UniversalClient, key, group string, handle func(*message.RawMessage) error) (stop func()) {
	t.Helper()
	sub, err := stream.NewSubscriber(client, stream.SubscriberConfig{Stream: key, Group: group, MaxDeliveries: 1, BlockTimeout: 10 * time.Millisecond})
	redistest.Must(t, err)
	return admintest.Running(t, func(ctx context.Context) error {
		messages, err := sub.Subscribe(ctx)
		if err != nil {
			return err
		}
		for msg := range messages {
			if err := handle(msg); err != nil {
				msg.Nack(err)
			} else {
				msg.Ack()
			}
		}
		return nil
	})
}

// refuse fails with the type of the message.
func refuse(msg *message.RawMessage) error { return errors.New("no " + msg.Type()) }

// giveUp lets a group give up n entries of a type.
func giveUp(t testing.TB, client redis.UniversalClient, key, group, kind string, n int) {
	t.Helper()
	before := client.XLen(t.Context(), stream.DeadLetterKey(key)).Val()
	add(t, client, key, kind, n)
	defer consume(t, client, key, group, refuse)()
	redistest.Eventually(t, "the entries to become dead letters", func() bool {
		return client.XLen(t.Context(), stream.DeadLetterKey(key)).Val() == before+int64(n)
	})
}

// listed returns the dead letters that a filter selects.
func listed(t testing.TB, d *admin.DeadLetters, f admin.DeadLetterFilter) []admin.DeadLetter {
	t.Helper()
	var all []admin.DeadLetter
	for l, err := range d.List(redistest.Soon(t), f) {
		redistest.Must(t, err)
		all = append(all, l)
	}
	return all
}

// recorded returns the audit records of dead letters.
func recorded(t testing.TB, op *admin.Operator) []string {
	t.Helper()
	var all []string
	for r, err := range op.Audit(redistest.Soon(t), time.Time{}) {
		redistest.Must(t, err)
		all = append(all, fmt.Sprintf("%s %s %d/%d %s", r.Who, r.Act, r.Done, r.Asked, r.Why))
	}
	slices.Sort(all)
	return all
}

// partition returns the key of a partition of the stream orders.
func partition(tr *luatx.Transactor, n int) string {
	return stream.PartitionKeys(tr.Keyspace(), "orders")[n]
}

func TestDeadLettersAreListedByTheNameOfAPartitionedStream(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 12)
		giveUp(t, client, partition(tr, 2), "billing", "sold", 2)
		giveUp(t, client, partition(tr, 10), "billing", "sold", 1)
		add(t, client, partition(tr, 10), "paid", 1)
		d := op.DeadLetters("orders")
		stop := consume(t, client, partition(tr, 10), "mails", refuse) // also of what billing has given up
		redistest.Eventually(t, "both to be given up", func() bool { return len(listed(t, d, admin.DeadLetterFilter{Group: "mails"})) == 2 })
		stop()
		all := listed(t, d, admin.DeadLetterFilter{})
		if len(all) != 5 || all[0].Stream != partition(tr, 2) || all[4].Stream != partition(tr, 10) || all[0].Type != "sold" ||
			all[0].Reason != "no sold" || all[0].Group != "billing" || all[0].Deliveries != 1 || all[0].Fields[0] != "ce_specversion" ||
			!strings.HasSuffix(all[0].ID, "@"+tr.Keyspace().Tags()[2]) || time.Since(all[0].At).Abs() > time.Minute {
			t.Fatalf("%d dead letters, the first is %+v", len(all), all[0])
		}
		for want, f := range map[int]admin.DeadLetterFilter{
			1: {Type: "paid"}, 2: {Group: "mails"}, 3: {Group: "billing"}, 4: {Text: "no sold"}, 0: {Since: time.Now().Add(time.Hour)},
		} {
			if got := listed(t, d, f); len(got) != want {
				t.Errorf("%v: %d dead letters, want %d", f, len(got), want)
			}
		}
		for i, l := range all {
			if rest := listed(t, d, admin.DeadLetterFilter{After: l.ID}); len(rest) != len(all)-i-1 {
				t.Errorf("%d dead letters behind the one of number %d", len(rest), i)
			}
			one, err := d.Show(redistest.Soon(t), l.ID)
			if err != nil || one.ID != l.ID || one.Entry != l.Entry || one.Stream != l.Stream {
				t.Errorf("one = %+v, err = %v", one, err)
			}
		}
		plain := op.DeadLetters(partition(tr, 2)) // a partition by its key
		for after, d := range map[string]*admin.DeadLetters{"1-1": d, "1-1@nowhere": d, all[0].ID: plain} {
			for _, err := range d.List(redistest.Soon(t), admin.DeadLetterFilter{After: after}) {
				if err == nil || !strings.Contains(err.Error(), "After") {
					t.Errorf("after %s: %v", after, err)
				}
			}
		}
		if got := listed(t, plain, admin.DeadLetterFilter{}); len(got) != 2 || got[0].ID+"@"+tr.Keyspace().Tags()[2] != all[0].ID {
			t.Errorf("got %+v", got)
		}
	})
}

func TestDeadLettersOfUnknownNamesAndIDsAreNotFound(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 4)
		key := "{" + redistest.Tag(t) + "}:orders"
		for _, err := range op.DeadLetters(key).List(redistest.Soon(t), admin.DeadLetterFilter{}) {
			if !errors.Is(err, admin.ErrNotFound) {
				t.Errorf("a stream that does not exist: %v", err)
			}
		}
		giveUp(t, client, key, "g", "sold", 2)
		d := op.DeadLetters(key)
		for _, id := range []string{"1-1", "1-1@pt0", listed(t, d, admin.DeadLetterFilter{})[0].ID + "@pt0"} {
			if _, err := d.Show(redistest.Soon(t), id); !errors.Is(err, admin.ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
		for _, id := range []string{"", "-", "+", "0", "1-", "(1-1", "99999999999999999999-0"} { // in a range these mean others
			_, err := d.Discard(redistest.Soon(t), admin.DeadLetterFilter{IDs: []string{id}}, "r", admin.DeadLetterOptions{})
			if err == nil || !strings.Contains(err.Error(), "is not the id of a dead letter") {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}

func TestRetryPutsEachDeadLetterBackOnceIntoItsPartition(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		const first, second = 130, 3 // more than a step acts on
		giveUp(t, client, partition(tr, 1), "g", "sold", first)
		giveUp(t, client, partition(tr, 3), "g", "sold", second)
		d := op.DeadLetters("orders")
		dry, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{Type: "sold"}, "repaired", admin.DeadLetterOptions{DryRun: true})
		if err != nil || dry.Matched != first+second || dry.Done != 0 || dry.Groups["g"] != first+second {
			t.Errorf("dry = %+v, err = %v", dry, err)
		}
		var group sync.WaitGroup
		results := make([]admin.DeadLetterResult, 3)
		for i := range results { // several operators at once
			group.Go(func() {
				var err error
				results[i], err = d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		done := 0
		for _, r := range results {
			if done += r.Done; r.Matched != r.Done+r.Skipped[outbox.Unknown] {
				t.Errorf("result = %+v", r)
			}
		}
		if done != first+second {
			t.Errorf("%d were put back, want %d", done, first+second)
		}
		for n, want := range map[int]int64{1: 2 * first, 3: 2 * second} {
			if got := client.XLen(t.Context(), partition(tr, n)).Val(); got != want {
				t.Errorf("partition %d has %d entries, want %d", n, got, want)
			}
		}
		if left := listed(t, d, admin.DeadLetterFilter{}); len(left) != 0 {
			t.Errorf("%d are left", len(left))
		}
		sum := 0
		for r, err := range op.Audit(redistest.Soon(t), time.Time{}) {
			redistest.Must(t, err)
			if sum += r.Done; r.Act != "retry" || r.Why != "repaired: all" || r.Who != "alice" {
				t.Errorf("result = %+v", r)
			}
		}
		if sum != first+second {
			t.Errorf("the audit has %d", sum)
		}
	})
}

func TestDiscardRespectsFilterAndLimitAndNeedsAReason(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 2)
		giveUp(t, client, partition(tr, 0), "g", "sold", 3)
		giveUp(t, client, partition(tr, 0), "g", "paid", 2)
		d := op.DeadLetters("orders")
		for _, reason := range []string{"", strings.Repeat("x", 1025)} {
			if _, err := d.Discard(redistest.Soon(t), admin.DeadLetterFilter{}, reason, admin.DeadLetterOptions{}); err == nil || !strings.Contains(err.Error(), "reason") {
				t.Errorf("a reason of %d bytes: %v", len(reason), err)
			}
		}
		for _, opts := range []admin.DeadLetterOptions{{Limit: -1}, {Canary: -1}, {CanaryWait: -1}, {Canary: 1001}} {
			if _, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "r", opts); err == nil {
				t.Errorf("%+v is accepted", opts)
			}
		}
		for _, opts := range []admin.DeadLetterOptions{{Limit: 2, DryRun: true}, {Limit: 2}} {
			r, err := d.Discard(redistest.Soon(t), admin.DeadLetterFilter{Type: "sold"}, "sold twice", opts)
			if done := r.Done == 2; err != nil || r.Matched != 2 || done == opts.DryRun {
				t.Errorf("%+v: result = %+v, err = %v", opts, r, err)
			}
		}
		left := listed(t, d, admin.DeadLetterFilter{})
		if len(left) != 3 || left[0].Type != "sold" || client.XLen(t.Context(), partition(tr, 0)).Val() != 5 {
			t.Errorf("%d are left: %+v", len(left), left)
		}
		r, err := d.Discard(redistest.Soon(t), admin.DeadLetterFilter{IDs: []string{left[2].ID, left[2].ID}}, "paid", admin.DeadLetterOptions{})
		if err != nil || r.Matched != 1 || r.Done != 1 {
			t.Errorf("result = %+v, err = %v", r, err)
		}
		if got, want := recorded(t, op), []string{"alice discard 1/1 paid: 2 ids", `alice discard 2/2 sold twice: type="sold"`}; !slices.Equal(got, want) {
			t.Errorf("the audit has %q", got)
		}
	})
}

func TestAuditRecordsActsOnStreamsOutsideTheKeyspace(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		_, op := admintest.Service(t, client, 1)
		key := redistest.Tag(t) + "mails" // no tag
		giveUp(t, client, key, "g", "sold", 3)
		d := op.DeadLetters(key)
		all := listed(t, d, admin.DeadLetterFilter{})
		redistest.Must(t, d.RecordRead(redistest.Soon(t), "by id", all[0]))
		_, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{IDs: []string{all[0].ID}}, "repaired", admin.DeadLetterOptions{})
		redistest.Must(t, err)
		_, err = d.Discard(redistest.Soon(t), admin.DeadLetterFilter{}, "late", admin.DeadLetterOptions{})
		redistest.Must(t, err)
		want := []string{"alice discard 2/2 late: all", fmt.Sprintf("alice read 1/1 dead letters of %q: by id", key), "alice retry 1/1 repaired: 1 ids"}
		if got := recorded(t, op); !slices.Equal(got, want) {
			t.Errorf("the audit has %q", got)
		}
	})
}

func TestImportRestoresExportedDeadLetters(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		key := partition(tr, 1)
		giveUp(t, client, key, "g", "sold", 120)
		giveUp(t, client, partition(tr, 2), "g", "paid", 1)
		// An entry of an unusual shape: a name that comes twice, bytes that are not UTF-8, and many fields.
		odd := []string{"ce_type", "odd", "twice", "1", "twice", "\x00\xff"}
		for i := range 1100 {
			odd = append(odd, fmt.Sprint("f", i), fmt.Sprint(i, ":"))
		}
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: odd}).Err())
		d := op.DeadLetters("orders")
		stop := consume(t, client, key, "g", refuse)
		redistest.Eventually(t, "the odd one to be a dead letter", func() bool { return client.XLen(t.Context(), stream.DeadLetterKey(key)).Val() == 121 })
		stop()
		before := listed(t, d, admin.DeadLetterFilter{})
		var file bytes.Buffer
		n, err := d.Export(redistest.Soon(t), &file, admin.DeadLetterFilter{})
		if err != nil || n != 122 || strings.Count(file.String(), "\n") != 122 || !strings.Contains(file.String(), `"fields":["ce_specversion","1.0",`) {
			t.Fatalf("%d lines, %v", n, err)
		}
		text := file.String()
		r, err := d.Import(redistest.Soon(t), strings.NewReader(text), "again", admin.ImportOptions{})
		if err != nil || r.Read != 122 || r.Imported != 0 || r.Skipped[outbox.Known] != 122 {
			t.Errorf("import of existing dead letters: %+v, %v", r, err)
		}
		_, err = d.Discard(redistest.Soon(t), admin.DeadLetterFilter{}, "kept in a file", admin.DeadLetterOptions{})
		redistest.Must(t, err)
		for _, want := range []int{122, 0} { // the second time all are there
			r, err := d.Import(redistest.Soon(t), strings.NewReader(text), "again", admin.ImportOptions{})
			if err != nil || r.Imported != want || r.Skipped[outbox.Known] != 122-want {
				t.Errorf("result = %+v, err = %v", r, err)
			}
		}
		after := listed(t, d, admin.DeadLetterFilter{})
		if len(after) != len(before) {
			t.Fatalf("%d dead letters, want %d", len(after), len(before))
		}
		for i := range after {
			a, b := after[i], before[i]
			if a.Stream != b.Stream || a.Entry != b.Entry || a.Group != b.Group || a.Consumer != b.Consumer || a.Reason != b.Reason ||
				a.Deliveries != b.Deliveries || !a.First.Equal(b.First) || !a.Last.Equal(b.Last) || !slices.Equal(a.Fields, b.Fields) {
				t.Fatalf("%+.300v, want %+.300v", a, b)
			}
		}
		retried, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{}) // also packed dead letters
		if err != nil || retried.Done != 122 || len(listed(t, d, admin.DeadLetterFilter{})) != 0 {
			t.Errorf("retried = %+v, err = %v", retried, err)
		}
		for name, line := range map[string]string{
			"line 1: unexpected": `x`, "line 1: the stream": `{"stream":"other","fields":["a","b"]}`, "a name and a value": fmt.Sprintf(`{"stream":%q,"fields":["a"]}`, key),
			"remove one": fmt.Sprintf(`{"stream":%q,"fields":["a","b"],"fields_base64":["YQ==","YQ=="]}`, key),
		} {
			if _, err := d.Import(redistest.Soon(t), strings.NewReader(line), "r", admin.ImportOptions{}); err == nil || name != "line 1: unexpected" && !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
}

func TestDeadLettersOfACustomKeyAndForeignEntries(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		_, op := admintest.Service(t, client, 1)
		tag := "{" + redistest.Tag(t) + "}"
		put := func(of string, fields ...string) {
			redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: tag + ":failed", Values: append([]string{
				"dead-reason", "why", "dead-stream", of, "dead-entry", "1-1", "dead-group", "g", "dead-consumer", "c", "dead-deliveries", "3",
				"dead-first", "1", "dead-last", "2",
			}, fields...)}).Err())
		}
		put(tag+":mails", "data", "1")
		put(tag+":orders", "data", "2")
		put("", "channel", "news", "data", "3") // of a channel
		put("elsewhere", "data", "4")           // a stream of another slot
		redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: tag + ":failed", Values: []string{"a", "b"}}).Err())
		d := op.DeadLetters(tag + ":failed")
		foreign := 0
		for l, err := range d.List(ctx, admin.DeadLetterFilter{}) {
			if errors.Is(err, stream.ErrNotDeadLetter) && l.ID != "" {
				foreign++
				continue
			}
			redistest.Must(t, err)
		}
		if all := listed(t, d, admin.DeadLetterFilter{Text: "why"}); foreign != 1 || len(all) != 4 {
			t.Errorf("%d dead letters, and %d other entries", len(all), foreign)
		}
		r, err := d.Retry(ctx, admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{})
		if err != nil || r.Matched != 4 || r.Done != 2 || r.Skipped[outbox.WrongState] != 2 {
			t.Errorf("result = %+v, err = %v", r, err)
		}
		for _, key := range []string{tag + ":mails", tag + ":orders"} {
			if n := client.XLen(ctx, key).Val(); n != 1 {
				t.Errorf("%s has %d entries", key, n)
			}
		}
		if r, err = d.Discard(ctx, admin.DeadLetterFilter{}, "late", admin.DeadLetterOptions{}); err != nil || r.Done != 2 || client.XLen(ctx, tag+":failed").Val() != 1 {
			t.Errorf("result = %+v, err = %v", r, err)
		}
	})
}

func TestRetryActsOnceIfAReplyIsLost(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	client := redistest.Client(t, proxy.Addr())
	tr, op := admintest.Service(t, client, 1)
	giveUp(t, client, partition(tr, 0), "g", "sold", 5)
	d := op.DeadLetters("orders")
	_, err := d.Discard(redistest.Soon(t), admin.DeadLetterFilter{}, "loads the script", admin.DeadLetterOptions{Limit: 1})
	redistest.Must(t, err)
	proxy.Next(1, respproxy.Command("EVALSHA"), respproxy.CutReply())
	r, err := d.Retry(redistest.Soon(t), admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{})
	if err != nil || r.Done != 4 || client.XLen(t.Context(), partition(tr, 0)).Val() != 9 {
		t.Errorf("result = %+v, err = %v", r, err)
	}
}

func TestAuditCutsALongFilterOfDeadLettersBetweenTwoCharacters(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	tr, op := admintest.Service(t, client, 1)
	group := strings.Repeat("ü", 512)
	giveUp(t, client, partition(tr, 0), group, "sold", 2)
	for _, reason := range []string{"r", "rr"} {
		_, err := op.DeadLetters("orders").Discard(redistest.Soon(t), admin.DeadLetterFilter{Group: group}, reason, admin.DeadLetterOptions{Limit: 1})
		redistest.Must(t, err)
	}
	all := recorded(t, op)
	if len(all) != 2 {
		t.Errorf("the audit has %q", all)
	}
	for _, text := range all {
		if !utf8.ValidString(text) {
			t.Errorf("the audit has %q", text)
		}
	}
}
