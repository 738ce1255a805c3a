package service

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/repair"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

// Mode is how the effects of a message are committed.
type Mode int

const (
	// Scripted commits a message in one script: see stack.Scripted.
	Scripted Mode = iota
	// Pipelined sends SET NX, MULTI … EXEC and XACK: see stack.Pipelined. It has no timers, no repair and no admin handler. Its
	// marks begin with Namespace and a colon, and its outbox streams are called Namespace-outbox, unless Stack says otherwise.
	Pipelined
	// Other commits by Given.Middleware, such as that of package sqltx. Given.Relay publishes the events, and no Transactor,
	// timers, repair or admin handler is made.
	Other
)

// Config configures a Service. Namespace and Stream are required, unless Given has the pieces that they are for; the zero
// value of everything else works.
type Config struct {
	// Namespace is that of the Transactor. Group defaults to it.
	Namespace string
	// Stream is the key of the stream that the service reads, or the name of a partitioned stream if Partitions is set.
	Stream string
	// Partitions is the number of partitions of the keyspace and of Stream: see luatx.Partitions and stream.PartitionKeys.
	// Defaults to 0: Stream is one stream, and each aggregate has a tag of its own.
	Partitions int
	// Group is the consumer group. Defaults to Namespace.
	Group string
	// Events is the key of the stream that events are published to. Defaults to none: the destination of each event names
	// its stream.
	Events string
	// Mode defaults to Scripted.
	Mode Mode
	// ShutdownTimeout bounds the time that Run takes to return after its context has ended. Handlers get half of it, and the
	// relay a fifth, if Subscriber.ShutdownTimeout and Relay.DrainTimeout are zero. At least 1 s. Defaults to 20 s.
	ShutdownTimeout time.Duration
	// Addr is the TCP address at which the service serves itself over HTTP while Run runs: see Service.ServeHTTP. Defaults to
	// none.
	Addr string
	// Admin adds the API for operators to ServeHTTP: see package httpapi. Defaults to nil: none.
	Admin *httpapi.Config
	// Timers decides the timers of package expiry. Defaults to none: its Event is nil.
	Timers expiry.WorkerConfig
	// NoRepair leaves out the repair of shards.
	NoRepair bool

	// Transactor, Subscriber, Engine, Stack, Publisher, Relay and Repair configure the pieces that New makes. Their
	// Observers are where telemetry is added. The fields above take precedence, and configs without a Logger get the one
	// below. Stack.RelayElsewhere leaves out the relay.
	Transactor luatx.Config
	Subscriber stream.PartitionedConfig
	Engine     message.EngineConfig
	Stack      stack.Config
	Publisher  stream.PublisherConfig
	Relay      relay.Config
	Repair     repair.Config
	// Outside and Inside are middlewares around the stack and between the stack and the handlers.
	Outside, Inside []message.Middleware

	// Given holds the pieces that are used instead of made.
	Given Given
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Given holds pieces that a program makes itself. Each is optional.
type Given struct {
	// Transactor commits. Config.Transactor does not matter then.
	Transactor *luatx.Transactor
	// Middleware replaces the one of package stack. Required with Other.
	Middleware *message.Middleware
	// Input reads the messages: a *stream.Subscriber, a *stream.PartitionedSubscriber or a Subscription.
	Input Input
	// Publisher is that of the relay.
	Publisher relay.Publisher
	// Relay publishes events: a *relay.Relay, or RunFunc around relay.Drive. It must return when its context ends.
	Relay Runner
	// Timers is the store of Config.Timers. Handlers that record timers share it.
	Timers *expiry.Store
	// Check reports whether the servers of the service can be reached, for Ready. Defaults to PING of the client.
	Check Check
}

const (
	minShutdown = time.Second
	workers     = 10
)

func (c Config) withDefaults() Config {
	c.Namespace = cmp.Or(c.Namespace, c.Transactor.Namespace)
	if c.Given.Transactor != nil {
		c.Namespace = cmp.Or(c.Namespace, c.Given.Transactor.Config().Namespace)
	}
	c.Group = cmp.Or(c.Group, c.Subscriber.Group, c.Namespace)
	c.Stream = cmp.Or(c.Stream, c.Subscriber.Stream)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 20*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())

	c.Transactor.Namespace, c.Transactor.Logger = c.Namespace, cmp.Or(c.Transactor.Logger, c.Logger)
	if c.Partitions > 0 && len(c.Transactor.Keyspace.Tags()) == 0 {
		c.Transactor.Keyspace = luatx.Partitions(c.Partitions)
	}
	c.Subscriber.Stream, c.Subscriber.Group, c.Subscriber.Logger = c.Stream, c.Group, cmp.Or(c.Subscriber.Logger, c.Logger)
	c.Subscriber.Namespace = cmp.Or(c.Subscriber.Namespace, c.Namespace)
	c.Subscriber.ShutdownTimeout = cmp.Or(c.Subscriber.ShutdownTimeout, c.ShutdownTimeout/2)
	c.Engine.Pipe.Logger = cmp.Or(c.Engine.Pipe.Logger, c.Logger)
	c.Stack.Logger = cmp.Or(c.Stack.Logger, c.Logger)
	if namespace := c.Namespace; c.Stack.MarkKey == nil {
		c.Stack.MarkKey = func(id message.Identity) string { return namespace + ":" + mark.Key(id.Source, id.ID) }
	}
	c.Publisher.Logger = cmp.Or(c.Publisher.Logger, c.Logger)
	c.Publisher.Stream = cmp.Or(c.Events, c.Publisher.Stream)
	if c.Publisher.Stream == "" && c.Publisher.StreamFor == nil {
		c.Publisher.StreamFor = func(event *message.RawMessage) (string, error) { return event.Destination(), nil }
	}
	c.Relay.DrainTimeout, c.Relay.Logger = cmp.Or(c.Relay.DrainTimeout, c.ShutdownTimeout/5), cmp.Or(c.Relay.Logger, c.Logger)
	c.Repair.Logger, c.Timers.Logger = cmp.Or(c.Repair.Logger, c.Logger), cmp.Or(c.Timers.Logger, c.Logger)
	return c
}

func (c Config) validate() error {
	given := c.Given
	switch {
	case c.Mode < Scripted || c.Mode > Other:
		return fmt.Errorf("service: Config.Mode is %d; use Scripted, Pipelined or Other", c.Mode)
	case c.Namespace == "" && c.Mode != Other:
		return errors.New("service: Config.Namespace is empty; set the name of the service, such as \"orders\"")
	case c.Stream == "" && given.Input == nil:
		return errors.New("service: Config.Stream is empty; set the stream that the service reads, or Given.Input")
	case c.Partitions < 0:
		return fmt.Errorf("service: Config.Partitions is %d; use 0 for one stream, or more", c.Partitions)
	case c.ShutdownTimeout < minShutdown:
		return fmt.Errorf("service: Config.ShutdownTimeout is %v; use at least %v, or 0 for the default", c.ShutdownTimeout, minShutdown)
	case c.Subscriber.ShutdownTimeout+c.Relay.DrainTimeout > c.ShutdownTimeout:
		return fmt.Errorf("service: Config.ShutdownTimeout is %v; use at least Subscriber.ShutdownTimeout and Relay.DrainTimeout together, %v",
			c.ShutdownTimeout, c.Subscriber.ShutdownTimeout+c.Relay.DrainTimeout)
	case given.Transactor != nil && c.Namespace != given.Transactor.Config().Namespace:
		return fmt.Errorf("service: Config.Namespace is %q, and that of Given.Transactor is %q; leave one out", c.Namespace, given.Transactor.Config().Namespace)
	case c.Mode == Other && given.Middleware == nil:
		return errors.New("service: Config.Given.Middleware is nil; set the middleware that commits in mode Other")
	case c.Mode == Other && given.Relay == nil && !c.Stack.RelayElsewhere:
		return errors.New("service: Config.Given.Relay is nil; set the function that publishes the events in mode Other, or Stack.RelayElsewhere")
	case c.Mode != Scripted && (c.Timers.Event != nil || c.Admin != nil):
		return errors.New("service: Config.Timers and Config.Admin need mode Scripted; leave them out")
	}
	return nil
}

// keyspace returns the keyspace of the Transactor, or that of the streams in another mode.
func (c Config) keyspace() luatx.Keyspace {
	if c.Given.Transactor != nil {
		return c.Given.Transactor.Keyspace()
	}
	return c.Transactor.Keyspace
}

// checkPartitions compares Partitions with the keyspace.
func (c Config) checkPartitions() error {
	if n := len(c.keyspace().Tags()); c.Partitions > 0 && n != c.Partitions {
		return fmt.Errorf("service: Config.Partitions is %d, and the keyspace of the Transactor has %d; use the same number, or leave Partitions out and set Given.Input", c.Partitions, n)
	}
	return nil
}
