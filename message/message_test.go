package message_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
)

// A message must not look like a context. If it had one of these methods, the selectors below would be ambiguous, and this file
// would not compile.
type contextMethods struct{}

func (contextMethods) Done()     {}
func (contextMethods) Deadline() {}
func (contextMethods) Value()    {}

type notAContext struct {
	*message.Message
	contextMethods
}

var (
	_ = notAContext{}.Done
	_ = notAContext{}.Deadline
	_ = notAContext{}.Value
)

func TestMessageIsNotAContext(t *testing.T) {
	t.Parallel()
	if _, ok := any(message.New(nil, nil, nil)).(context.Context); ok {
		t.Error("a message satisfies context.Context")
	}
}

func TestAccessorsReturnAttributesOfTheirType(t *testing.T) {
	t.Parallel()
	made := time.Date(2024, 2, 29, 12, 0, 0, 5, time.UTC)
	msg := message.New(nil, message.Attributes{
		"id": "1", "source": "/s", "specversion": "1.0", "type": "t", "subject": "sub", "datacontenttype": "ct",
		"dataschema": "ds", "destination": "d", "correlationid": "c", "partitionkey": "p",
		"time": made, "expirytime": made.Format(time.RFC3339Nano),
	}, nil)
	for _, c := range [][2]string{
		{msg.ID(), "1"},
		{msg.Source(), "/s"},
		{msg.SpecVersion(), "1.0"},
		{msg.Type(), "t"},
		{msg.Subject(), "sub"},
		{msg.DataContentType(), "ct"},
		{msg.DataSchema(), "ds"},
		{msg.Destination(), "d"},
		{msg.CorrelationID(), "c"},
		{msg.PartitionKey(), "p"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
	if got, ok := msg.Time(); !ok || !got.Equal(made) {
		t.Errorf("Time: %v, %v", got, ok)
	}
	if got, ok := msg.ExpiryTime(); !ok || !got.Equal(made) {
		t.Errorf("ExpiryTime: %v, %v", got, ok)
	}
	odd := message.Attributes{"id": 7, "time": "soon", "expirytime": time.Time{}}
	if odd.ID() != "" {
		t.Error("a number is no id")
	}
	if _, ok := odd.Time(); ok {
		t.Error("soon is no time")
	}
	if _, ok := odd.ExpiryTime(); ok {
		t.Error("the zero time is no time")
	}
}

func TestCopySharesTheAckingButNotTheAttributes(t *testing.T) {
	t.Parallel()
	msg := message.New("in", message.Attributes{"id": "1"}, message.NewAcking(nil, nil))
	type key struct{}
	msg.WithValue(key{}, "v")
	out := message.Copy(msg, 42)
	out.Attributes["id"] = "2"
	if msg.ID() != "1" || out.Data != 42 {
		t.Errorf("attributes are shared, or the data is %v", out.Data)
	}
	if out.Context(t.Context()).Value(key{}) != "v" {
		t.Error("the values were not copied")
	}
	if !out.Ack() || msg.Ack() {
		t.Error("the acking is not shared")
	}
	bare := message.Copy(&message.Message{}, 1)
	bare.Attributes["id"] = "x" // must be writable
}

func TestContextReturnsValuesOfTheMessageThenOfItsParent(t *testing.T) {
	t.Parallel()
	type key string
	parent := context.WithValue(context.WithValue(t.Context(), key("parent"), "p"), key("both"), "parent's")
	msg := message.New(nil, nil, nil)
	ctx := msg.Context(parent)
	msg.WithValue(key("one"), 1)
	msg.WithValue(key("both"), "first")
	msg.WithValue(key("both"), "message's")
	msg.WithValue(key("nil"), nil)
	for k, want := range map[key]any{"parent": "p", "one": 1, "both": "message's", "nil": nil, "none": nil} {
		if got := ctx.Value(k); got != want {
			t.Errorf("%s is %v, want %v", k, got, want)
		}
	}
	before := message.Copy(msg, 0)
	msg.WithValue(key("late"), true)
	if before.Context(t.Context()).Value(key("late")) != nil {
		t.Error("a value reached an earlier copy")
	}
}

func TestValuesWithInvalidKeysAreIgnored(t *testing.T) {
	t.Parallel()
	msg := message.New(nil, nil, nil)
	bad := []int{1}
	msg.WithValue(nil, 1)
	msg.WithValue(bad, 1)
	if got := msg.Context(context.Background()).Value(bad); got != nil {
		t.Errorf("found %v", got)
	}
}

func TestMessageWithoutValuesAllocatesNothingForThem(t *testing.T) {
	type key struct{}
	msg := message.New(nil, nil, nil)
	parent := context.WithValue(context.Background(), key{}, 1)
	ctx := msg.Context(parent)
	if n := testing.AllocsPerRun(100, func() { _ = ctx.Value(key{}) }); n != 0 {
		t.Errorf("a look-up allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = msg.Context(parent) }); n > 1 {
		t.Errorf("Context allocates %v times, want the context alone", n)
	}
	attrs := message.Attributes{}
	if n := testing.AllocsPerRun(100, func() { msg = message.New(nil, attrs, nil) }); n > 1 {
		t.Errorf("New allocates %v times, want the message alone", n)
	}
}

func TestContextReturnsItsMessageAndAttributes(t *testing.T) {
	t.Parallel()
	msg := message.New(nil, message.Attributes{"id": "m"}, nil)
	raw := message.NewRaw(nil, message.Attributes{"id": "r"}, nil)
	outer := raw.Context(t.Context())
	inner := msg.Context(outer)
	if got, ok := message.MessageFromContext(inner); !ok || got != msg {
		t.Error("the message is not there")
	}
	if got, ok := message.RawMessageFromContext(inner); !ok || got != raw {
		t.Error("the raw message is not there")
	}
	if got, ok := message.AttributesFromContext(inner); !ok || got.ID() != "m" {
		t.Error("want the attributes of the inner message")
	}
	if _, ok := message.MessageFromContext(outer); ok {
		t.Error("a raw message is no message")
	}
	for _, ctx := range []context.Context{t.Context(), inner} {
		if _, ok := message.AckStrategyFromContext(ctx); ok {
			t.Error("a strategy without a Router")
		}
		if _, ok := message.HandlerNameFromContext(ctx); ok {
			t.Error("a handler without a Router")
		}
	}
}

func TestContextEndsAtExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		expiry := time.Now().Add(time.Minute)
		ctx := message.New(nil, message.Attributes{message.AttrExpiryTime: expiry}, nil).Context(t.Context())
		if got, ok := ctx.Deadline(); !ok || !got.Equal(expiry) {
			t.Errorf("deadline %v, %v", got, ok)
		}
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		<-child.Done()
		if !time.Now().Equal(expiry) {
			t.Errorf("ended at %v, want %v", time.Now(), expiry)
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("ended with %v, %v", ctx.Err(), child.Err())
		}
	})
}

func TestContextOfAMessageWithoutExpiryHasNoDeadline(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancel(t.Context())
	ctx := message.New(nil, nil, nil).Context(parent)
	if _, ok := ctx.Deadline(); ok {
		t.Error("a deadline from nowhere")
	}
	cancel()
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error(ctx.Err())
	}
}

func TestPermanentAndRetryAfterMarkAnError(t *testing.T) {
	t.Parallel()
	if message.Permanent(nil) != nil || message.RetryAfter(nil, time.Second) != nil {
		t.Error("nil must stay nil")
	}
	both := message.RetryAfter(message.Permanent(errBoom), time.Second)
	if !message.IsPermanent(both) || !errors.Is(both, errBoom) || both.Error() != "boom" {
		t.Errorf("%v", both)
	}
	if d, ok := message.RetryDelay(both); !ok || d != time.Second {
		t.Errorf("%v, %v", d, ok)
	}
	if d, ok := message.RetryDelay(message.RetryAfter(errBoom, -time.Second)); !ok || d != 0 {
		t.Errorf("%v, %v", d, ok)
	}
	if _, ok := message.RetryDelay(errBoom); ok || message.IsPermanent(errBoom) || message.IsPermanent(nil) {
		t.Error("a plain error has no marks")
	}
	if p := (&message.PanicError{Value: errBoom}); !errors.Is(p, errBoom) {
		t.Error("a panic with an error must unwrap to it")
	}
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	cases := []struct {
		b       message.Backoff
		attempt int
		want    time.Duration
	}{
		{message.Backoff{}, 1, 100 * ms},
		{message.Backoff{}, 2, 200 * ms},
		{message.Backoff{}, 1000, 30 * time.Second},
		{message.Backoff{Base: 10 * ms, Max: 25 * ms}, 0, 10 * ms},
		{message.Backoff{Base: 10 * ms, Max: 25 * ms}, 2, 20 * ms},
		{message.Backoff{Base: 10 * ms, Max: 25 * ms}, 3, 25 * ms},
		{message.Backoff{Base: time.Hour, Max: time.Second}, 1, time.Second},
		{message.Backoff{Base: 1, Max: math.MaxInt64}, 200, math.MaxInt64},
	}
	for _, c := range cases {
		if got := c.b.Ceiling(c.attempt); got != c.want {
			t.Errorf("%+v attempt %d: ceiling %v, want %v", c.b, c.attempt, got, c.want)
		}
		for range 100 {
			if d := c.b.Delay(c.attempt); d < 0 || d > c.want {
				t.Fatalf("%+v attempt %d: delay %v", c.b, c.attempt, d)
			}
		}
	}
}

func TestNewIDsDifferAndHave26Characters(t *testing.T) {
	t.Parallel()
	if a, b := message.NewID(), message.NewID(); a == b || len(a) != 26 {
		t.Errorf("%q, %q", a, b)
	}
}

func TestMatchersCombineTypesAndSources(t *testing.T) {
	t.Parallel()
	a := message.Attributes{"type": "t", "source": "/s"}
	for name, c := range map[string]struct {
		m    message.Matcher
		want bool
	}{
		"type":          {message.MatchType("x", "t"), true},
		"another type":  {message.MatchType("x"), false},
		"source":        {message.MatchSource("/s"), true},
		"all":           {message.MatchAll(message.MatchType("t"), nil, message.MatchSource("/s")), true},
		"all but one":   {message.MatchAll(message.MatchType("t"), message.MatchSource("/x")), false},
		"any":           {message.MatchAny(message.MatchType("x"), message.MatchSource("/s")), true},
		"any of none":   {message.MatchAny(), false},
		"all of none":   {message.MatchAll(), true},
		"any with nil":  {message.MatchAny(nil), true},
		"any, no match": {message.MatchAny(message.MatchType("x")), false},
	} {
		if got := c.m(a); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
