package admin_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stream"
	"github.com/luatx/luatx/trigger"
)

// processes returns the processes that the operator lists.
func processes(t *testing.T, op *admin.Operator, kinds ...string) (all []admin.Process) {
	t.Helper()
	for p, err := range op.Processes(redistest.Soon(t), kinds...) {
		redistest.Must(t, err)
		all = append(all, p)
	}
	return all
}

// ignore is a Processor that acknowledges messages.
var ignore = stream.ProcessFunc(func(_ context.Context, msg *message.RawMessage) error {
	msg.Ack()
	return nil
})

func TestEveryKindOfProcessRegistersItselfWhileItRuns(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		namespace, tag := tr.Config().Namespace, "{"+redistest.Tag(t)+"}:"
		link.Of(tr).Processes.Interval = 5 * time.Millisecond
		fast := stream.SubscriberConfig{Stream: tag + "s", Group: "g", BlockTimeout: 20 * time.Millisecond}

		consumer, err := stream.NewSubscriber(client, fast)
		redistest.Must(t, err)
		partitioned := fast
		partitioned.Stream = "p"
		member, err := stream.NewPartitionedSubscriber(client, tr.Keyspace(), stream.PartitionedConfig{SubscriberConfig: partitioned, Lease: 100 * time.Millisecond})
		redistest.Must(t, err)
		plain := fast
		plain.Stream, plain.Namespace = tag+"n", namespace
		subscriber, err := stream.NewSubscriber(client, plain)
		redistest.Must(t, err)
		store, err := expiry.New(tr, expiry.Config{})
		redistest.Must(t, err)
		timers, err := expiry.NewWorker(store, expiry.WorkerConfig{Event: func(context.Context, expiry.Timer) (*message.Message, error) { return nil, nil }})
		redistest.Must(t, err)
		worker, err := repair.New(tr, repair.Config{})
		redistest.Must(t, err)
		function := trigger.New(trigger.Config{
			Function: "mail", Run: func(context.Context, *message.RawMessage) error { return nil }, Connector: trigger.Connector{Client: client},
			Mode: trigger.ModeStream, Stream: tag + "t", Group: "g", BlockTimeout: 20 * time.Millisecond, Namespace: namespace,
		})

		stops := []func(){
			admintest.Relay(t, tr, func(*message.RawMessage) error { return nil }),
			admintest.Running(t, func(ctx context.Context) error { return consumer.Consume(ctx, tr, ignore) }),
			admintest.Running(t, func(ctx context.Context) error { return member.Consume(ctx, tr, ignore) }),
			admintest.Running(t, func(ctx context.Context) error {
				messages, err := subscriber.Subscribe(ctx)
				for range messages { // until it is closed
				}
				return err
			}),
			admintest.Running(t, timers.Run), admintest.Running(t, worker.Run), admintest.Running(t, function.Run),
		}
		want := []string{"consumer s g", "consumer p g", "consumer n g", "relay", "repair", "timers", "trigger mail"}
		for i, w := range want {
			if i < 3 && i != 1 {
				want[i] = w[:9] + tag + w[9:]
			}
		}
		slices.Sort(want)
		var held []string
		redistest.Eventually(t, "all of them to be listed", func() bool {
			var got []string
			for _, p := range processes(t, op) {
				name := p.Kind
				if p.WorksOn() != "" {
					name += " " + p.WorksOn()
				}
				got = append(got, name)
				if p.Stream == "p" {
					held = p.Partitions
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want) && len(held) == 4
		})
		slices.Sort(held)
		if keys := slices.Sorted(slices.Values(stream.PartitionKeys(tr.Keyspace(), "p"))); !slices.Equal(held, keys) {
			t.Errorf("the member holds %v, want %v", held, keys)
		}
		if triggers := processes(t, op, "trigger"); len(triggers) != 1 || !triggers[0].Trigger.Ready || triggers[0].Trigger.Transport != "redis.stream" {
			t.Errorf("triggers: %+v", triggers)
		}
		for _, stop := range stops {
			stop()
		}
		if left := processes(t, op); len(left) > 0 {
			t.Errorf("processes after their end: %+v", left)
		}
		for _, err := range op.Processes(redistest.Soon(t), "relays") {
			if err == nil {
				t.Error("an unknown kind has processes")
			}
		}
	})
}

func TestNoRegistrationKeepsProcessesOutOfTheList(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		tr, op := admintest.Service(t, client, 4)
		cfg := tr.Config()
		cfg.NoRegistration = true
		silent, err := luatx.New(client, cfg)
		redistest.Must(t, err)
		till := &admintest.Till{}
		admintest.Relay(t, silent, func(e *message.RawMessage) error { return till.Take(e, false) })
		admintest.Emit(t, silent, "a", "1")
		redistest.Eventually(t, "the relay to work", func() bool { return len(till.List()) == 1 })
		worker, err := repair.New(tr, repair.Config{})
		redistest.Must(t, err)
		admintest.Running(t, worker.Run)
		redistest.Eventually(t, "another process to register", func() bool { return len(processes(t, op)) > 0 })
		if all := processes(t, op); len(all) != 1 || all[0].Kind != "repair" {
			t.Errorf("listed: %+v", all)
		}
	})
}

func TestHolderNamesTheRelayThatHasALeasedEvent(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := redistest.Soon(t)
		tr, op := admintest.Service(t, client, 4)
		link.Of(tr).Processes.Interval = 5 * time.Millisecond
		begun, release := make(chan struct{}), make(chan struct{})
		r, err := relay.New(tr, relay.PublisherFunc(func(_ context.Context, events []*message.RawMessage) []error {
			close(begun)
			<-release
			return make([]error, len(events))
		}), relay.Config{SweepInterval: 10 * time.Millisecond, NoInline: true})
		redistest.Must(t, err)
		admintest.Emit(t, tr, "a", "1")
		admintest.Running(t, r.Run)
		<-begun
		slot, err := op.Outbox().Slot("a")
		redistest.Must(t, err)
		event, err := op.Outbox().Show(ctx, slot, "1")
		redistest.Must(t, err)
		var holder admin.Process
		redistest.Eventually(t, "the relay to report its lease and its publish", func() bool {
			var known bool
			holder, known, err = op.Holder(ctx, event)
			redistest.Must(t, err)
			return known && holder.InFlight == 1
		})
		if holder.Kind != process.Relay || len(holder.Leases) != 1 || holder.Leases[0].Events != 1 {
			t.Errorf("the holder is %+v", holder)
		}
		close(release)
		redistest.Eventually(t, "the lease to end", func() bool {
			relays := processes(t, op, "relay")
			return len(relays) == 1 && len(relays[0].Leases) == 0 && relays[0].InFlight == 0 && relays[0].Counts["sent"] == 1
		})
		event.State = outbox.Sent
		if _, known, err := op.Holder(ctx, event); known || err != nil {
			t.Errorf("Holder of a sent event: %v, want an error", err)
		}
	})
}
