package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

// Input reads messages and hands them to a Processor until ctx ends. Consume returns when the messages in flight are
// settled. Transactor is nil in the modes Pipelined and Other.
type Input interface {
	Consume(ctx context.Context, t *luatx.Transactor, p stream.Processor) error
}

// Subscription is the Input of any subscriber: several workers take its messages, and each commits by itself.
type Subscription struct {
	// Subscriber closes its channel some time after the context has ended. Required.
	Subscriber message.Subscriber
	// Workers is how many messages are handled at a time. Defaults to 10.
	Workers int
	// ShutdownTimeout is how long handlers may go on after the context has ended. Defaults to 10 s.
	ShutdownTimeout time.Duration
	// Logger gets the errors of handlers. Defaults to slog.Default().
	Logger *slog.Logger
}

func (s Subscription) withDefaults() Subscription {
	s.Workers = cmp.Or(s.Workers, workers)
	s.ShutdownTimeout = cmp.Or(s.ShutdownTimeout, 10*time.Second)
	s.Logger = cmp.Or(s.Logger, slog.Default())
	return s
}

func (s Subscription) validate() error {
	switch {
	case s.Subscriber == nil:
		return errors.New("service: Subscription.Subscriber is nil; set the source of the service")
	case s.Workers < 0:
		return fmt.Errorf("service: Subscription.Workers is %d; use 0 for the default, or more", s.Workers)
	case s.ShutdownTimeout < 0:
		return fmt.Errorf("service: Subscription.ShutdownTimeout is %v; use 0 for the default, or more", s.ShutdownTimeout)
	}
	return nil
}

// Consume implements Input. Messages that no worker has taken when ctx ends are the subscriber's to give back.
func (s Subscription) Consume(ctx context.Context, _ *luatx.Transactor, p stream.Processor) error {
	if err := s.validate(); err != nil {
		return err
	}
	s = s.withDefaults()
	if err := p.Check(); err != nil {
		return err
	}
	messages, err := s.Subscriber.Subscribe(ctx)
	if ctx.Err() != nil && err != nil {
		return nil // it stops before it has begun
	}
	if err != nil {
		return err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.ShutdownTimeout, cancel) })()
	var taking sync.WaitGroup
	for range s.Workers {
		taking.Go(func() {
			for msg := range messages {
				if err := p.ProcessRaw(work, msg); err != nil {
					s.Logger.Error("service: message failed", "id", msg.ID(), "error", err)
				}
			}
		})
	}
	taking.Wait()
	return nil
}

// input returns what reads the stream.
func (c Config) input(client redis.UniversalClient) (Input, error) {
	if c.Given.Input != nil {
		return c.Given.Input, nil
	}
	type reader interface {
		Input
		message.Subscriber
	}
	var made reader
	var err error
	if c.Partitions > 0 {
		made, err = stream.NewPartitionedSubscriber(client, c.keyspace(), c.Subscriber)
	} else {
		made, err = stream.NewSubscriber(client, c.Subscriber.SubscriberConfig)
	}
	switch {
	case err != nil:
		return nil, err
	case c.Mode == Scripted:
		return made, nil
	default:
		return Subscription{Subscriber: made, Workers: c.Subscriber.BatchSize, ShutdownTimeout: c.Subscriber.ShutdownTimeout, Logger: c.Logger}, nil
	}
}
