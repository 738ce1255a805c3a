package stream_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

func TestConfigErrorsNameTheFieldThenTheRemedy(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	tests := map[string]func(*stream.SubscriberConfig){
		"":                func(*stream.SubscriberConfig) {},
		"Stream":          func(c *stream.SubscriberConfig) { c.Stream = "" },
		"Group":           func(c *stream.SubscriberConfig) { c.Group = "" },
		"StartID":         func(c *stream.SubscriberConfig) { c.StartID = ">" },
		"BatchSize":       func(c *stream.SubscriberConfig) { c.BatchSize, c.MaxInFlight = -1, 1 },
		"MaxInFlight":     func(c *stream.SubscriberConfig) { c.MaxInFlight = -1 },
		"BlockTimeout":    func(c *stream.SubscriberConfig) { c.BlockTimeout = time.Microsecond },
		"ClaimInterval":   func(c *stream.SubscriberConfig) { c.ClaimInterval = -1 },
		"MaxIdleTime":     func(c *stream.SubscriberConfig) { c.MaxIdleTime = -1 },
		"ShutdownTimeout": func(c *stream.SubscriberConfig) { c.ShutdownTimeout = -1 },
		"MaxDecodedBytes": func(c *stream.SubscriberConfig) { c.MaxDecodedBytes = -1 },
		"MaxDeliveries":   func(c *stream.SubscriberConfig) { c.MaxDeliveries = -1 },
		"DeadLetter":      func(c *stream.SubscriberConfig) { c.DeadLetter = "other" },
		"Codecs":          func(c *stream.SubscriberConfig) { c.Codecs = []stream.Codec{nil} },
		"DeleteAcked":     func(c *stream.SubscriberConfig) { c.DeleteAcked, c.TrimAcked = true, true },
		"NackBackoff":     func(c *stream.SubscriberConfig) { c.NackBackoff.Max = -1 },
	}
	for field, change := range tests {
		cfg := stream.SubscriberConfig{Stream: "s", Group: "g"}
		change(&cfg)
		_, err := stream.NewSubscriber(client, cfg)
		wantFieldError(t, err, "SubscriberConfig", field)
	}
	if _, err := stream.NewSubscriber(nil, stream.SubscriberConfig{Stream: "s", Group: "g"}); err == nil {
		t.Error("a nil client is taken")
	}
	if _, err := stream.NewPublisher(nil, stream.PublisherConfig{Stream: "s"}); err == nil {
		t.Error("a nil client is taken")
	}
	if _, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{Stream: "s"}); err != nil {
		t.Error(err)
	}
	_, err := stream.NewOutboxSubscriber(client, stream.SubscriberConfig{})
	wantFieldError(t, err, "SubscriberConfig", "Stream")

	publisher := map[string]func(*stream.PublisherConfig){
		"":       func(*stream.PublisherConfig) {},
		"Stream": func(c *stream.PublisherConfig) { c.Stream = "" },
		"Stream and StreamFor": func(c *stream.PublisherConfig) {
			c.StreamFor = func(*message.RawMessage) (string, error) { return "", nil }
		},
		"Aggregate": func(c *stream.PublisherConfig) {
			c.Aggregate = func(*message.RawMessage) (string, error) { return "", nil }
		},
		"Codecs":            func(c *stream.PublisherConfig) { c.Codecs = []stream.Codec{nil} },
		"TrimAcked":         func(c *stream.PublisherConfig) { c.TrimAcked, c.MaxLen = true, 1 },
		"TrimInterval":      func(c *stream.PublisherConfig) { c.TrimInterval = -1 },
		"IdempotencyWindow": func(c *stream.PublisherConfig) { c.IdempotencyWindow = 1 },
		"MaxBytes":          func(c *stream.PublisherConfig) { c.MaxBytes = -1 },
		"MaxLen":            func(c *stream.PublisherConfig) { c.MaxLen = -1 },
		"BatchSize":         func(c *stream.PublisherConfig) { c.BatchSize = -1 },
	}
	for field, change := range publisher {
		cfg := stream.PublisherConfig{Stream: "s"}
		change(&cfg)
		_, err := stream.NewPublisher(client, cfg)
		wantFieldError(t, err, "PublisherConfig", field)
	}
}

// wantFieldError checks that an error names first the field and the problem, and then the remedy after a colon.
func wantFieldError(t *testing.T, err error, config, field string) {
	t.Helper()
	form := regexp.MustCompile(`^stream: ` + config + `\.` + field + `(?: [^:;]+)?[:;] \S.+$`)
	switch {
	case field == "" && err != nil:
		t.Errorf("the least config is refused: %v", err)
	case field != "" && (err == nil || !form.MatchString(err.Error())):
		t.Errorf("error %v does not name %s.%s, then the remedy", err, config, field)
	}
}

func TestTimesAtTheirBoundsAreAllowed(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { client.Close() })
	const least = time.Millisecond
	cfg := stream.SubscriberConfig{Stream: "s", Group: "g", BlockTimeout: least, ClaimInterval: least, MaxIdleTime: least}
	if _, err := stream.NewSubscriber(client, cfg); err != nil {
		t.Error(err)
	}
	cfg.BlockTimeout, cfg.ClaimInterval, cfg.MaxIdleTime = least-1, least-1, least-1
	_, err := stream.NewSubscriber(client, cfg)
	for _, field := range []string{"BlockTimeout", "ClaimInterval", "MaxIdleTime"} {
		if err == nil || !strings.Contains(err.Error(), field+" is below 1 ms") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for window, allowed := range map[time.Duration]bool{time.Second - 1: false, time.Second: true, 24 * time.Hour: true, 24*time.Hour + 1: false, -1: true} {
		if _, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "s", IdempotencyWindow: window}); (err == nil) != allowed {
			t.Errorf("an IdempotencyWindow of %v: %v", window, err)
		}
	}
}
