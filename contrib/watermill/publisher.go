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

// ErrClosed is returned by what has been closed.
var ErrClosed = errors.New("watermill: closed")

// PublisherConfig configures a Publisher. Its zero value works.
type PublisherConfig struct {
	// Key names the stream of a topic. Defaults to the topic itself.
	Key func(topic string) string
	// Source is who makes the messages, for those whose metadata has no source. Defaults to "watermill".
	Source string
	// MaxLen is about how many entries a stream keeps; older ones are trimmed, read or not. Defaults to 0: all.
	MaxLen int64
	// MaxBytes is the largest entry. Defaults to 64 MiB.
	MaxBytes int
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Publisher writes messages of Watermill to Redis Streams, as CloudEvents, which luatx and others read. It implements
// Watermill's message.Publisher: Publish returns when all were written, and sends again what a lost reply leaves in doubt.
type Publisher struct {
	cfg    PublisherConfig
	stream *stream.Publisher
	closed atomic.Bool
}

type keyOf struct{}

// NewPublisher makes a Publisher. It does no I/O, and never closes the client.
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

// Publish implements Watermill's Publisher. The context is that of the first message. Where some could not be written the
// error names them; others of the call may be in.
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

// Close implements Watermill's Publisher. Nothing is written later than its call.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
