package stream_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func (f *fixture) publisher(t *testing.T, change ...func(*stream.PublisherConfig)) *stream.Publisher {
	t.Helper()
	cfg := stream.PublisherConfig{Stream: f.key, Logger: f.logs.logger()}
	for _, c := range change {
		c(&cfg)
	}
	pub, err := stream.NewPublisher(f.client, cfg)
	redistest.Must(t, err)
	return pub
}

// written returns the ids of the messages in a stream.
func (f *fixture) written(t *testing.T, key string) []string {
	t.Helper()
	entries, err := f.client.XRange(t.Context(), key, "-", "+").Result()
	redistest.Must(t, err)
	ids := []string{}
	for _, x := range entries {
		msg, err := stream.Unmarshal(x.ID, x.Values)
		redistest.Must(t, err)
		ids = append(ids, msg.ID())
	}
	return ids
}

func TestSendKeepsTheOrderAndFillsIDs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	blank := &message.RawMessage{Data: []byte("x")}
	send(t, f.publisher(t), order("1"), blank, order("2"))
	if blank.ID() == "" {
		t.Fatal("the message has no id, a second write would have another")
	}
	if got, want := f.written(t, f.key), []string{"1", blank.ID(), "2"}; !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
	if errs := f.publisher(t).Send(t.Context()); errs != nil {
		t.Error(errs)
	}
}

func TestSendDoesNotSettleMessages(t *testing.T) {
	t.Parallel()
	f := shared(t)
	msg := order("1")
	msg.SetAcking(message.NewAcking(nil, nil))
	f.publisher(t).Send(t.Context(), msg)
	if !msg.Ack() {
		t.Error("the message was settled")
	}
}

func TestSendReturnsAnErrorForEachFailedMessage(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(*testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.Shared(t).Client(t) },
		"Cluster": func(t *testing.T) redis.UniversalClient { t.Helper(); return redistest.SharedCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, client(t))
			keys := map[string]string{"mail": redistest.Tag(t), "bill": redistest.Tag(t), "text": redistest.Tag(t)}
			redistest.Must(t, f.client.Set(t.Context(), keys["text"], "no stream", 0).Err())
			pub := f.publisher(t, func(c *stream.PublisherConfig) {
				c.Stream = ""
				c.StreamFor = func(m *message.RawMessage) (string, error) {
					switch m.Destination() {
					case "lost":
						return "", errBusy
					case "panic":
						panic("no")
					}
					return keys[m.Destination()], nil
				}
				c.Marshal = func(m *message.RawMessage) ([]any, error) {
					switch m.ID() {
					case "odd":
						return []any{"a"}, nil
					case "struct":
						return []any{"a", struct{}{}}, nil
					}
					return stream.Binary(m)
				}
			})
			to := func(id, destination string) *message.RawMessage {
				m := order(id)
				m.Attributes[message.AttrDestination] = destination
				return m
			}
			bad := order("bad")
			bad.Attributes["x"] = struct{}{}
			bad.Attributes[message.AttrDestination] = "mail"
			errs := pub.Send(t.Context(), to("1", "mail"), to("2", "lost"), to("3", "bill"), to("4", "nowhere"),
				to("5", "text"), bad, nil, to("odd", "mail"), to("struct", "mail"), to("6", "panic"), to("7", "mail"))
			permanent := []bool{false, true, false, true, false, true, true, true, true, true, false}
			failed := []bool{false, true, false, true, true, true, true, true, true, true, false}
			for i, err := range errs {
				if (err != nil) != failed[i] || message.IsPermanent(err) != permanent[i] {
					t.Errorf("message %d: error %v, want one: %v, permanent: %v", i, err, failed[i], permanent[i])
				}
			}
			if !errors.Is(errs[1], errBusy) || !redis.HasErrorPrefix(errs[4], "WRONGTYPE") || !errors.Is(errs[5], message.ErrEncode) {
				t.Errorf("errors are %v", errs)
			}
			if got := f.written(t, keys["mail"]); !slices.Equal(got, []string{"1", "7"}) {
				t.Errorf("mail has %q", got)
			}
			if got := f.written(t, keys["bill"]); !slices.Equal(got, []string{"3"}) {
				t.Errorf("bill has %q", got)
			}
		})
	}
}

func TestMaxLenTrimsExactlyOrApproximately(t *testing.T) {
	t.Parallel()
	for exact, trim := range map[bool]string{true: "=", false: "~"} {
		proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
		f := newFixture(t, redistest.Client(t, proxy.Addr()))
		pub := f.publisher(t, func(c *stream.PublisherConfig) { c.MaxLen, c.ExactTrim = 2, exact })
		send(t, pub, order("1"), order("2"), order("3"))
		if got := f.written(t, f.key); exact && !slices.Equal(got, []string{"2", "3"}) {
			t.Errorf("the stream has %q, want the last two", got)
		}
		for _, cmd := range proxy.Commands(respproxy.Command("XADD")) {
			if !strings.HasPrefix(strings.Join(cmd[2:], " "), "maxlen "+trim+" 2 ") {
				t.Errorf("sent %q, want maxlen %s 2", cmd, trim)
			}
		}
	}
}

func TestPublishAcksWrittenMessages(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := make(chan *message.RawMessage, 10)
	var want []string
	var msgs []*message.RawMessage
	for _, id := range numbers(10) {
		msg := order(id)
		msg.SetAcking(message.NewAcking(nil, nil))
		msgs = append(msgs, msg)
		want = append(want, id)
		in <- msg
	}
	bad := message.NewRaw(nil, message.Attributes{"x": struct{}{}}, message.NewAcking(nil, nil))
	close(in)
	done, err := f.publisher(t, func(c *stream.PublisherConfig) { c.BatchSize = 4 }).Publish(t.Context(), in)
	redistest.Must(t, err)
	<-done
	for _, msg := range msgs {
		<-msg.Settled()
		redistest.Must(t, msg.Err())
	}
	if got := f.written(t, f.key); !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}

	in = make(chan *message.RawMessage, 3)
	in <- nil
	in <- bad
	in <- message.NewRaw(nil, message.Attributes{"x": struct{}{}}, nil)
	close(in)
	done, err = f.publisher(t).Publish(t.Context(), in)
	redistest.Must(t, err)
	<-done
	if err := bad.Err(); !errors.Is(err, message.ErrEncode) || !message.IsPermanent(err) {
		t.Errorf("nacked with %v, want a permanent ErrEncode", err)
	}
	f.logs.want(t, "stream: nil message not published", 1)
	f.logs.want(t, "stream: message not published", 1)
}

// beforePipelines calls a function before each pipeline.
type beforePipelines func()

func (beforePipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (beforePipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f beforePipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f()
		return next(ctx, cmds)
	}
}

func TestPublishWritesMessagesReadBeforeItsContextEnded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.client.AddHook(beforePipelines(cancel))
	in := make(chan *message.RawMessage, 1)
	msg := order("1")
	msg.SetAcking(message.NewAcking(nil, nil))
	in <- msg
	done, err := f.publisher(t).Publish(ctx, in)
	redistest.Must(t, err)
	<-done
	<-msg.Settled()
	if got := f.written(t, f.key); msg.Err() != nil || !slices.Equal(got, []string{"1"}) {
		t.Errorf("nacked with %v, wrote %q; want the message that was taken", msg.Err(), got)
	}
}

func TestWriteWithALostReplyIsWrittenAgain(t *testing.T) {
	t.Parallel()
	f, proxy := proxied(t)
	proxy.DropReply(1, respproxy.Command("XADD"))
	send(t, f.publisher(t), &message.RawMessage{})
	got := f.written(t, f.key)
	if len(got) != 2 || got[0] != got[1] || got[0] == "" {
		t.Errorf("wrote %q, want one id twice", got)
	}
}

func TestOutboxEntriesStayUntilTheirDestinationAcceptsThem(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for _, id := range []string{"1", "2"} {
		redistest.Must(t, f.client.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key, Values: []any{
			"type", "order.placed", "source", "/shop", "destination", "mail", "data", `{"order":` + id + `}`,
			"attributes", `{"specversion":"1.0","id":"` + id + `","type":"order.placed","source":"/shop","destination":"mail"}`,
		}}).Err())
	}
	cfg := f.config()
	cfg.Group, cfg.DeleteAcked = "", true
	sub, err := stream.NewOutboxSubscriber(f.client, cfg)
	redistest.Must(t, err)
	out := run(t, sub)
	to := f.key + ":mail"
	redistest.Must(t, f.client.Set(t.Context(), to, "takes nothing", 0).Err())
	done, err := f.publisher(t, func(c *stream.PublisherConfig) { c.Stream = to }).Publish(t.Context(), out.ch)
	redistest.Must(t, err)
	eventually(t, func() bool { return sub.Stats().Redelivered > 4 }, func() string { return "not tried again" })
	pending := func() int64 { return f.client.XPending(t.Context(), f.key, stream.OutboxGroup).Val().Count }
	if n := pending(); n != 2 {
		t.Errorf("%d pending, want those that were not taken", n)
	}
	redistest.Must(t, f.client.Del(t.Context(), to).Err())
	eventually(t, func() bool { return f.client.XLen(t.Context(), f.key).Val() == 0 }, func() string { return "the entries stay" })
	got := f.written(t, to)
	if slices.Sort(got); !slices.Equal(got, []string{"1", "2"}) || pending() != 0 {
		t.Errorf("forwarded %q, %d pending", got, pending())
	}
	out.cancel()
	<-done
}

// writes records how many entries each pipeline writes.
type writes struct {
	beforePipelines

	sizes *[]int
}

func (w writes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "xadd" {
			*w.sizes = append(*w.sizes, len(cmds))
		}
		return next(ctx, cmds)
	}
}

func TestPublishWritesUpToBatchSizeWaitingMessagesAtOnce(t *testing.T) {
	t.Parallel()
	f, sizes := shared(t), []int{}
	f.client.AddHook(writes{sizes: &sizes})
	in := make(chan *message.RawMessage, 10)
	for _, id := range numbers(10) {
		in <- order(id)
	}
	close(in)
	done, err := f.publisher(t, func(c *stream.PublisherConfig) { c.BatchSize = 4 }).Publish(t.Context(), in)
	redistest.Must(t, err)
	<-done
	if !slices.Equal(sizes, []int{4, 4, 2}) {
		t.Errorf("wrote %v at once, want 4, 4 and 2", sizes)
	}
}

func TestPublishLeavesMessagesWithTheSenderAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	for range 10 { // a select would take one of two ready channels
		f := shared(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.client.AddHook(beforePipelines(cancel))
		in := make(chan *message.RawMessage, 6)
		for _, id := range numbers(6) {
			in <- order(id)
		}
		done, err := f.publisher(t, func(c *stream.PublisherConfig) { c.BatchSize = 2 }).Publish(ctx, in)
		redistest.Must(t, err)
		<-done
		if got := f.written(t, f.key); len(got) != 2 || len(in) != 4 {
			t.Errorf("wrote %q, left %d, want 4", got, len(in))
		}
	}
}

func TestSendOfAUserWithAWrongPasswordReturnsAnErrorForEachMessage(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t, redistest.Shared(t).Addr(), func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" })
	pub, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: redistest.Tag(t)})
	redistest.Must(t, err)
	errs := pub.Send(t.Context(), order("1"), order("2"))
	if len(errs) != 2 {
		t.Fatalf("%d errors, want 2", len(errs))
	}
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("message %d: %v", i, err)
		}
	}
}
