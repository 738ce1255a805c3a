package watermill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// ErrClosed is returned by a closed Publisher or Subscriber.
var ErrClosed = errors.New("watermill: closed")

// PublisherConfig configures a Publisher. The zero value is usable.
type PublisherConfig struct {
	// Key returns the stream of a topic. Defaults to the topic itself.
	Key func(topic string) string
	// Source is the source of messages without one in their metadata. Defaults to "watermill".
	Source string
	// MaxLen is the approximate number of entries that a stream keeps. Older ones are trimmed, even if they are unread. Defaults
	// to 0: all.
	MaxLen int64
	// MaxBytes is the maximum size of an entry, in bytes. Defaults to 64 MiB.
	MaxBytes int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Publisher writes Watermill messages to Redis Streams as CloudEvents, which luatx and other programs can read. It implements
// Watermill's message.Publisher. Publish returns when all messages are written, and sends a message again if a reply was lost.
type Publisher struct {
	cfg    PublisherConfig
	stream *stream.Publisher
	closed atomic.Bool
}

type keyOf struct{}

// NewPublisher returns a Publisher. It does no I/O, and never closes the client.
func NewPublisher(client redis.UniversalClient, cfg PublisherConfig) (*Publisher, error) {
	cfg.Source = cmp.Or(cfg.Source, "watermill")
	p := &Publisher{cfg: cfg}
	var err error
	p.stream, err = stream.NewPublisher(client, stream.PublisherConfig{
		StreamFor: func(raw *message.RawMessage) (string, error) {
			key, _ := raw.Context(context.Background()).Value(keyOf{}).(string)
			return key, nil
		},
		MaxLen: cfg.MaxLen, MaxBytes: cfg.MaxBytes, Logger: cfg.Logger,
	})
	return p, err
}

// Publish implements Watermill's Publisher. It uses the context of the first message. If some messages could not be written, the
// error names them; the others may have been written.
func (p *Publisher) Publish(topic string, messages ...*wm.Message) error {
	switch {
	case p.closed.Load():
		return ErrClosed
	case len(messages) == 0:
		return nil
	}
	raws := make([]*message.RawMessage, len(messages))
	for i, msg := range messages {
		raw, err := ToRaw(msg, p.cfg.Source)
		if err != nil {
			return err
		}
		raw.WithValue(keyOf{}, key(p.cfg.Key, topic))
		raws[i] = raw
	}
	var failed []error
	for i, err := range p.stream.Send(messages[0].Context(), raws...) {
		if err != nil {
			failed = append(failed, fmt.Errorf("watermill: message %q to %q: %w", messages[i].UUID, topic, err))
		}
	}
	return errors.Join(failed...)
}

func key(name func(string) string, topic string) string {
	if name == nil {
		return topic
	}
	return name(topic)
}

// Close implements Watermill's Publisher. Later calls of Publish return ErrClosed.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
