package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/message/middleware"
)

var errBoom = errors.New("boom")

func TestRecoverReturnsAPanicAsAnErrorWithItsStack(t *testing.T) {
	t.Parallel()
	outs, err := middleware.Recover().Wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
		panic(errBoom)
	})(t.Context(), message.New(nil, nil, nil))
	var p *message.PanicError
	if !errors.As(err, &p) || !errors.Is(err, errBoom) || !strings.Contains(string(p.Stack), "TestRecoverReturnsAPanicAsAnErrorWithItsStack") || outs != nil {
		t.Errorf("%v, %v", outs, err)
	}
}

func TestTimeoutEndsTheContextOfTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		wait := func(ctx context.Context, _ *message.Message) ([]*message.Message, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := middleware.Timeout(time.Minute).Wrap(wait)(t.Context(), message.New(nil, nil, nil))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
	none := func(ctx context.Context, _ *message.Message) ([]*message.Message, error) {
		if _, ok := ctx.Deadline(); ok {
			t.Error("a deadline from nowhere")
		}
		return nil, errBoom
	}
	if _, err := middleware.Timeout(0).Wrap(none)(t.Context(), message.New(nil, nil, nil)); !errors.Is(err, errBoom) {
		t.Error(err)
	}
}

func TestLoggingWritesOneLinePerMessage(t *testing.T) {
	t.Parallel()
	for _, fail := range []error{nil, errBoom} {
		var buf bytes.Buffer
		logger := slog.New(slog.NewJSONHandler(&buf, nil))
		router := message.NewRouter(message.PipeConfig{})
		err := errors.Join(
			router.Use(middleware.Logging(logger)),
			router.AddHandler("h", nil, message.NewHandler(func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{message.New(1, nil, nil)}, fail
			})),
		)
		if err != nil {
			t.Fatal(err)
		}
		attrs := message.Attributes{"id": "1", "type": "t", "source": "/s", "subject": "sub"}
		if _, err := router.Process(t.Context(), message.New(nil, attrs, nil)); !errors.Is(err, fail) {
			t.Fatal(err)
		}
		var line map[string]any
		if err := json.Unmarshal(buf.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if _, ok := line["duration"].(float64); !ok {
			t.Errorf("no duration: %v", line)
		}
		delete(line, "duration")
		delete(line, "time")
		want := map[string]any{
			"level": "INFO", "msg": "message handled", "handler": "h", "id": "1", "type": "t", "source": "/s", "subject": "sub", "outputs": 1.0,
		}
		if fail != nil {
			want["level"], want["msg"], want["error"] = "ERROR", "message failed", "boom"
		}
		if !reflect.DeepEqual(line, want) {
			t.Errorf("got %v\nwant %v", line, want)
		}
	}
}

func TestOutputsGetTheCorrelationIDOfTheInputUnlessSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, out message.Attributes
		want    string
	}{
		{message.Attributes{"id": "1", "correlationid": "c"}, nil, "c"},
		{message.Attributes{"id": "1"}, nil, "1"},
		{message.Attributes{"id": "1"}, message.Attributes{"correlationid": "own"}, "own"},
		{nil, nil, ""},
	} {
		next := func(context.Context, *message.Message) ([]*message.Message, error) {
			return []*message.Message{nil, {Attributes: c.out}}, nil
		}
		outs, err := middleware.CorrelationID().Wrap(next)(t.Context(), message.New(nil, c.in, nil))
		if err != nil || outs[1].CorrelationID() != c.want {
			t.Errorf("%v: got %v, %v", c, outs[1].Attributes, err)
		}
		if _, there := outs[1].Attributes[message.AttrCorrelationID]; there != (c.want != "") {
			t.Errorf("%v: an empty correlation id", c)
		}
	}
}

func TestRetryRepeatsTemporaryFailuresUpToMaxAttempts(t *testing.T) {
	t.Parallel()
	type outcome struct {
		runs int
		took time.Duration
	}
	always := func(err error) func(int, *message.Message) error {
		return func(int, *message.Message) error { return err }
	}
	backoff := message.Backoff{Base: time.Nanosecond, Max: time.Nanosecond} // almost no wait
	cases := []struct {
		name    string
		cfg     middleware.RetryConfig
		timeout time.Duration
		fail    func(run int, msg *message.Message) error
		want    outcome
		ok      bool
	}{
		{"success", middleware.RetryConfig{}, 0, always(nil), outcome{1, 0}, true},
		{"second time", middleware.RetryConfig{}, 0, func(run int, _ *message.Message) error {
			if run == 1 {
				return message.RetryAfter(errBoom, time.Second)
			}
			return nil
		}, outcome{2, time.Second}, true},
		{"three by default", middleware.RetryConfig{}, 0, always(message.RetryAfter(errBoom, time.Second)), outcome{3, 2 * time.Second}, false},
		{"as many as told", middleware.RetryConfig{MaxAttempts: 5}, 0, always(message.RetryAfter(errBoom, time.Second)), outcome{5, 4 * time.Second}, false},
		{"backoff", middleware.RetryConfig{Backoff: backoff}, 0, always(errBoom), outcome{3, 0}, false},
		{"permanent", middleware.RetryConfig{}, 0, always(message.Permanent(errBoom)), outcome{1, 0}, false},
		{"not retryable", middleware.RetryConfig{Retryable: func(error) bool { return false }}, 0, always(errBoom), outcome{1, 0}, false},
		{"settled", middleware.RetryConfig{}, 0, func(_ int, msg *message.Message) error {
			msg.Release()
			return message.RetryAfter(errBoom, time.Second)
		}, outcome{1, 0}, false},
		{"settled meanwhile", middleware.RetryConfig{}, 0, func(_ int, msg *message.Message) error {
			time.AfterFunc(time.Second, func() { msg.Release() })
			return message.RetryAfter(errBoom, time.Hour)
		}, outcome{1, time.Second}, false},
		{"no time left", middleware.RetryConfig{}, time.Minute, always(message.RetryAfter(errBoom, time.Hour)), outcome{1, 0}, false},
		{"time for one more", middleware.RetryConfig{}, time.Minute, always(message.RetryAfter(errBoom, 40*time.Second)), outcome{2, 40 * time.Second}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				runs, start := 0, time.Now()
				_, err := middleware.Retry(c.cfg).Wrap(func(_ context.Context, msg *message.Message) ([]*message.Message, error) {
					runs++
					return nil, c.fail(runs, msg)
				})(ctx, message.New(nil, nil, message.NewAcking(nil, nil)))
				got := outcome{runs, time.Since(start).Truncate(time.Microsecond)}
				if got != c.want || (err == nil) != c.ok || (err != nil && !errors.Is(err, errBoom)) {
					t.Errorf("got %+v, %v, want %+v", got, err, c.want)
				}
			})
		})
	}
}

func TestRetryStopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := middleware.Retry(middleware.RetryConfig{}).Wrap(func(context.Context, *message.Message) ([]*message.Message, error) {
			return nil, message.RetryAfter(errBoom, time.Hour)
		})(ctx, message.New(nil, nil, nil))
		if !errors.Is(err, errBoom) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
