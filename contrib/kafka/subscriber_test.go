package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// TestPartitionIsDeliveredInOrderWithNackedRecordFirst tests that the records of a partition are handed out one after the
// other, each after the previous one was acked, and a nacked one before those behind it. Each delivery of a record must have
// the same identity.
func TestPartitionIsDeliveredInOrderWithNackedRecordFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	c.put("in", 0, "0", "1", "2", "3")
	m := c.join("in")
	first := next(t, m.in)
	if first.Source() != "kafka://in" || !strings.HasPrefix(first.ID(), "0-0-") || first.Type() != "in" || first.Subject() != "key" {
		t.Errorf("%v", first.Attributes)
	}
	first.Nack(message.RetryAfter(errors.New("not yet"), 20*time.Millisecond))
	for i := range 4 {
		msg := next(t, m.in)
		if string(msg.Data) != fmt.Sprint(i) || i == 0 && msg.ID() != first.ID() {
			t.Fatalf("%v %s came instead of %d", msg.Attributes, msg.Data, i)
		}
		msg.Ack()
	}
	redistest.Eventually(t, "the offset", func() bool { return c.committed("in", 0) == 4 })
}

// TestNoOffsetBeyondAnUnackedRecordIsCommitted tests that with Concurrency, other records continue while one is not acked, and
// that no offset beyond it is committed.
func TestNoOffsetBeyondAnUnackedRecordIsCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	var values []string
	for i := range 30 {
		values = append(values, fmt.Sprint(i))
	}
	c.put("in", 0, values...)
	m := c.join("in", func(cfg *kafka.SubscriberConfig) { cfg.Concurrency, cfg.Buffer = 3, 8 })
	held := map[string]*message.RawMessage{}
	for range 3 {
		msg := next(t, m.in)
		held[string(msg.Data)] = msg
	}
	held["0"].Ack()
	held["2"].Ack() // record 1 is not acked
	for range 4 {
		next(t, m.in).Ack()
	}
	redistest.Eventually(t, "the offset before the gap", func() bool { return c.committed("in", 0) == 1 })
	for range 20 { // commits continue, and none passes the gap
		if at := c.committed("in", 0); at != 1 {
			t.Fatalf("%d is committed, and 1 is not acked", at)
		}
	}
	held["1"].Ack()
	for range 23 {
		next(t, m.in).Ack()
	}
	redistest.Eventually(t, "the last offset", func() bool { return c.committed("in", 0) == 30 })
}

// TestRecordThatNoHandlerHasTakenIsNoDeadLetter tests that a router that stops does not use up the deliveries of a record.
func TestRecordThatNoHandlerHasTakenIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in", "dead")
	c.put("in", 0, "a")
	dead := c.publisher(func(cfg *kafka.PublisherConfig) {
		cfg.Topic = func(*message.RawMessage) (string, error) { return "dead", nil }
	})
	m := c.join("in", func(cfg *kafka.SubscriberConfig) { cfg.DeadLetter, cfg.MaxDeliveries = dead, 1 })
	next(t, m.in).Nack(message.ErrStopped)
	next(t, m.in).Ack()
}

// TestRefusedRecordsBecomeDeadLettersOrBlockTheirPartition tests that records with permanent errors and invalid ones become
// dead letters. They block their partition if there are no dead letters, or if these cannot be published.
func TestRefusedRecordsBecomeDeadLettersOrBlockTheirPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in", "dead", "held")
	for _, topic := range []string{"in", "held"} {
		rec := &kgo.Record{Topic: topic, Value: []byte("malformed"), Headers: []kgo.RecordHeader{{Key: "ce_specversion", Value: []byte("7")}}}
		redistest.Must(t, c.client().ProduceSync(t.Context(), rec).FirstErr())
		c.put(topic, 0, "bad", "tired", "good")
	}
	dead := c.publisher(func(cfg *kafka.PublisherConfig) {
		cfg.Topic = func(*message.RawMessage) (string, error) { return "dead", nil }
	})
	m := c.join("in", func(cfg *kafka.SubscriberConfig) { cfg.DeadLetter, cfg.MaxDeliveries = dead, 3 })
	times := map[string]int{}
	for times["good"] == 0 {
		msg := next(t, m.in)
		times[string(msg.Data)]++
		switch string(msg.Data) {
		case "good":
			msg.Ack()
		case "bad":
			msg.Nack(message.Permanent(errors.New("never")))
		default:
			msg.Nack(errors.New("later"))
		}
	}
	if fmt.Sprint(times) != "map[bad:1 good:1 tired:3]" {
		t.Errorf("deliveries %v", times)
	}
	redistest.Eventually(t, "the offset", func() bool { return c.committed("in", 0) == 4 })
	reasons := map[string]string{}
	for _, rec := range c.records("dead", 3) {
		for _, h := range rec.Headers {
			if h.Key == "ce_"+kafka.AttrReason {
				reasons[string(rec.Value)] = string(h.Value)
			}
		}
	}
	if reasons["bad"] != "never" || reasons["tired"] != "later" || !strings.Contains(reasons["malformed"], "specversion") {
		t.Errorf("dead letters %v", reasons)
	}

	without := c.join("held", func(cfg *kafka.SubscriberConfig) {
		cfg.Unmarshal = func(rec *kgo.Record) (*message.RawMessage, error) { return message.NewRaw(rec.Value, nil, nil), nil }
		cfg.DeadLetter = c.publisher() // without a topic
	})
	for range 3 {
		msg := next(t, without.in)
		if string(msg.Data) != "malformed" {
			t.Errorf("%s came past the record that is refused", msg.Data)
		}
		msg.Nack(message.Permanent(errors.New("never")))
	}
	if at := c.committed("held", 0); at > 0 {
		t.Errorf("%d is committed", at)
	}
}

// TestRestartedServiceContinuesBehindAckedRecords tests that a restarted service begins behind the records that were acked,
// even after its subscription's end, and with those that were not.
func TestRestartedServiceContinuesBehindAckedRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, "in")
	c.put("in", 0, "0", "1", "2", "3", "4")
	m := c.join("in", func(cfg *kafka.SubscriberConfig) { cfg.CommitInterval = time.Hour })
	next(t, m.in).Ack()
	next(t, m.in).Ack()
	working := next(t, m.in)
	m.end()
	if at := c.committed("in", 0); at != 2 {
		t.Errorf("%d is committed at the end, want 2", at)
	}
	working.Ack()
	if at := c.committed("in", 0); at != 3 {
		t.Errorf("%d is committed after the end, want 3", at)
	}
	m.leave()
	m = c.join("in")
	for _, want := range []string{"3", "4"} {
		msg := next(t, m.in)
		if string(msg.Data) != want {
			t.Errorf("%s came, want %s", msg.Data, want)
		}
		msg.Ack()
	}
}

// TestMemberCommitsNothingAfterItLosesAPartition tests that a member that has lost a partition commits no more of its offsets,
// that its earlier acks were committed, and that the new owner begins there.
func TestMemberCommitsNothingAfterItLosesAPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, "in")
	for p := range int32(2) {
		c.put("in", p, fmt.Sprint(p, "-0"), fmt.Sprint(p, "-1"), fmt.Sprint(p, "-2"))
	}
	slow := func(cfg *kafka.SubscriberConfig) { cfg.CommitInterval = time.Hour }
	a := c.join("in", slow)
	for range 2 { // the first record of each partition
		next(t, a.in).Ack()
	}
	held := map[string]*message.RawMessage{}
	for range 2 {
		msg := next(t, a.in)
		held[string(msg.Data)] = msg
	}
	b := c.join("in", slow)
	again := next(t, b.in) // from its new partition
	lost := held[string(again.Data)]
	if lost == nil {
		t.Fatalf("%s came to the new owner; the old one held %v", again.Data, held)
	}
	if again.ID() != lost.ID() {
		t.Errorf("%s is %s now", lost.ID(), again.ID())
	}
	partition := int32(again.ID()[0] - '0')
	if at := c.committed("in", partition); at != 1 {
		t.Errorf("%d is committed, want 1", at)
	}
	lost.Ack() // too late
	a.end()
	a.client.Close()
	if at := c.committed("in", partition); at != 1 {
		t.Errorf("%d is committed by the member that had lost the partition", at)
	}
	again.Ack()
	seen := map[string]bool{string(again.Data): true}
	for len(seen) < 4 { // b has both partitions by now
		msg := next(t, b.in)
		seen[string(msg.Data)] = true
		msg.Ack()
	}
	b.end()
	for p := range int32(2) {
		if at := c.committed("in", p); at != 3 {
			t.Errorf("%d of partition %d is committed at the end", at, p)
		}
	}
}
