package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/contrib/kafka"
	"github.com/luatx/luatx/internal/test/brokertest"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// books is a ledger that one partition of Kafka feeds.
type books struct {
	*brokertest.Ledger
	*cluster
	operator *admin.Operator
	put      int // messages of each account
}

func newBooks(t *testing.T) *books {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	ledger, err := brokertest.NewLedger(client, redistest.Namespace(t))
	redistest.Must(t, err)
	operator, err := admin.NewOperator(ledger.Transactor(), admin.OperatorConfig{Client: client, Name: "test"})
	redistest.Must(t, err)
	return &books{Ledger: ledger, cluster: newCluster(t, 1, ledgerTopic), operator: operator}
}

// more produces n messages of account 0.
func (b *books) more(n int) {
	b.t.Helper()
	producer := b.client()
	for range n {
		rec := &kgo.Record{Topic: ledgerTopic, Key: []byte(brokertest.Account(0)), Value: fmt.Appendf(nil, `{"Number":%d}`, b.put)}
		redistest.Must(b.t, producer.ProduceSync(b.t.Context(), rec).FirstErr())
		b.put++
	}
}

// owner is a running member.
type owner struct {
	client *kgo.Client
	stop   func()

	mu     sync.Mutex
	failed []error
}

// run runs a member until the test ends, or stop is called. Before runs in each handler.
func (b *books) run(before func(number int)) *owner {
	b.t.Helper()
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		CommitInterval: 20 * time.Millisecond, NackBackoff: message.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	})
	redistest.Must(b.t, err)
	o := &owner{client: b.client(append(sub.Options(), kgo.ConsumerGroup("ledger"), kgo.ConsumeTopics(ledgerTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(300*time.Millisecond))...)}
	engine, err := b.Engine(brokertest.Hooks{Failed: o.note, Before: func(_ context.Context, _ string, number int) error {
		before(number)
		return nil
	}}, sub)
	redistest.Must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	o.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		o.client.Close()
	})
	b.t.Cleanup(o.stop)
	return o
}

// note keeps the error of a message.
func (o *owner) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = append(o.failed, err)
}

// awaitError waits for an error of a commit.
func (o *owner) awaitError(t testing.TB, what string, is func(error) bool) {
	t.Helper()
	redistest.Eventually(t, what, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.ContainsFunc(o.failed, is)
	})
}

func (b *books) rewind(to string) {
	b.t.Helper()
	changed, err := b.operator.Rewind(b.t.Context(), admin.Rewind{
		Scope: b.Namespace + "/enter", Source: "kafka://" + ledgerTopic, Partition: "0", Offset: to, Reason: "test",
	})
	redistest.Must(b.t, err)
	if len(changed) != 1 {
		b.t.Errorf("%d positions are set back", len(changed))
	}
}

func at(n int) string { return fmt.Sprintf("%020d", n) }

// stall makes the cluster answer no heartbeat of a member until the function returned is called.
func (c *cluster) stall(o *owner) (wake func()) {
	id, _ := o.client.GroupMetadata()
	woken := make(chan struct{})
	c.ControlKey(int16(kmsg.Heartbeat), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if req, ok := kreq.(*kmsg.HeartbeatRequest); ok && req.MemberID == id {
			c.SleepControl(func() { <-woken })
		}
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(woken) })
}

func nothing(int) {}

func (b *books) wantList(want string) {
	b.t.Helper()
	if got := strings.Join(b.List(b.t, 0), " "); got != want {
		b.t.Errorf("the list is %s, want %s", got, want)
	}
}

func TestStalledMemberHasNoEffectAfterItsPartitionWentToAnother(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.more(7)
	reached, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var once sync.Once
	late := make(chan int, 100)
	old := b.run(func(n int) {
		if n == 3 {
			once.Do(func() { close(reached); <-goOn })
		}
		late <- n
	})
	<-reached
	wake := b.stall(old)
	defer wake()
	b.run(nothing)
	b.Await(t, 1, 7)
	release() // the old member still has the records 3 to 6
	redistest.Eventually(t, "the old member to handle what it holds", func() bool {
		for len(late) > 0 {
			if <-late == 6 {
				return true
			}
		}
		return false
	})
	wake()
	b.more(3)
	b.Await(t, 1, 10)
	b.Want(t, 1, 10)
}

func TestStalledMemberIsFencedAfterARewind(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.more(7)
	reached, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var once sync.Once
	old := b.run(func(n int) {
		if n == 4 {
			once.Do(func() { close(reached); <-goOn })
		}
	})
	<-reached
	wake := b.stall(old)
	defer wake()
	b.forget("ledger") // the group has given the member up
	b.rewind(at(1))
	release()
	old.awaitError(t, "the late commit to be fenced", func(err error) bool { return errors.Is(err, luatx.ErrFenced) })
	b.wantList("0 1 2 3")
	b.run(nothing)
	b.Await(t, 1, 9)
	b.wantList("0 1 2 3 2 3 4 5 6")
	wake()
}

func TestRewindAppliesRecordsBehindThePositionAgainOnce(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.more(7)
	first := b.run(nothing)
	b.Await(t, 1, 7)
	first.stop()
	b.rewind(at(3))
	b.forget("ledger")
	second := b.run(nothing)
	b.Await(t, 1, 10)
	b.wantList("0 1 2 3 4 5 6 4 5 6")
	second.stop()
	b.forget("ledger")
	b.run(nothing)
	b.more(1) // behind everything that comes again
	redistest.Eventually(t, "the group's offset", func() bool { return b.offset("ledger", ledgerTopic, 0) == 8 })
	b.wantList("0 1 2 3 4 5 6 4 5 6")
	if n, err := b.Applied(t.Context(), 1); err != nil || n != 11 { // number 7 is parked
		t.Errorf("%d messages are applied or parked, %v", n, err)
	}
}

func TestOwnerContinuesAfterItsTenureWasReplaced(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.more(3)
	o := b.run(nothing)
	b.Await(t, 1, 3)
	b.rewind(at(2)) // only the generation changes
	b.more(4)
	b.Await(t, 1, 7)
	o.awaitError(t, "a commit to be fenced", func(err error) bool { return errors.Is(err, luatx.ErrFenced) })
	b.Want(t, 1, 7)
}

func TestRecreatedTopicIsAnErrorUntilItsPositionIsForgotten(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.more(5)
	first := b.run(nothing)
	b.Await(t, 1, 5)
	first.stop()
	b.recreate(ledgerTopic)
	b.forget("ledger")
	b.put = 10
	b.more(3)
	second := b.run(nothing)
	second.awaitError(t, "the new epoch to be noticed", func(err error) bool {
		_, ok := errors.AsType[*message.EpochError](err)
		return ok
	})
	b.wantList("0 1 2 3 4")
	second.stop()
	b.rewind("")
	b.run(nothing)
	b.Await(t, 1, 8)
	b.wantList("0 1 2 3 4 10 11 12")
}
