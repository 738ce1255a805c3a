package trigger

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// Mode selects a driver.
type Mode string

// The modes of the drivers of this package.
const (
	ModePubSub Mode = "pubsub"
	ModeStream Mode = "stream"
)

// Func is the function that a trigger runs for each delivery. The data of the message is the Payload as JSON. If it returns nil,
// the trigger acks the entry. After an error, the entry stays pending: message.RetryAfter sets the time of the next attempt, and
// message.Permanent prevents one. The function may pass the message to an Engine's Process, whose middlewares may acknowledge it
// in a commit. It need not settle the message itself, and an error overrides an Ack. ctx ends when the trigger stops and its
// ShutdownTimeout is over. A function that ignores ctx keeps Run from returning.
type Func func(ctx context.Context, msg *message.RawMessage) error

// Config configures a trigger. Function, Run, a Connector and a Mode with its fields are required.
type Config struct {
	// Function is the name of the function. Every log line and the names of consumers contain it.
	Function string
	// Run is called for each delivery.
	Run Func

	// Connector configures the connection to the server.
	Connector Connector
	// Mode is ModePubSub or ModeStream. With a Driver, it is any name for log lines.
	Mode Mode

	// Channels and Patterns are the subscriptions in ModePubSub. At least one of them is required.
	Channels, Patterns []string
	// Sharded subscribes to shard channels (Redis 7.0), which stay in the shard of their slot in a cluster. Channels that do not
	// share a tag in braces use one connection each.
	Sharded bool

	// Stream is the key of the stream in ModeStream.
	Stream string
	// Group is the consumer group. The trigger creates it if it does not exist. Defaults to none: each trigger reads all entries,
	// and keeps its position in memory.
	Group string
	// LastID is the id after which a created group, or a trigger without a group, begins to read. "0" is the whole stream, and
	// "$" is every entry added after the start. Defaults to "0" with a Group, and to "$" without.
	LastID string
	// LastIDKey is a key in which a trigger without a Group stores its position, so that the next process continues there. Each
	// trigger needs its own key. Defaults to none.
	LastIDKey string
	// ClaimInterval is the interval between searches for entries of other consumers of the Group. Defaults to 30 s.
	ClaimInterval time.Duration
	// MaxIdleTime is the time without a heartbeat of its consumer after which an entry is claimed. A heartbeat keeps the entry of
	// a function that takes longer. Set the same value in every trigger of a group. Defaults to 60 s.
	MaxIdleTime time.Duration
	// MaxDeliveries is the number of failed deliveries, by any process, after which an entry is moved to the dead letters.
	// Without a Group, only deliveries of this process count. A negative number means no limit. Defaults to 20, which is about
	// three minutes with the default Retry; with NoDeadLetter there is no limit.
	MaxDeliveries int
	// DeadLetter is the key of the stream for entries that failed MaxDeliveries times or permanently (message.Permanent), and for
	// those without a valid payload. It must share the tag of Stream. Defaults to stream.DeadLetterKey(Stream). In ModePubSub it
	// defaults to none: messages without a valid payload are logged and dropped.
	DeadLetter string
	// NoDeadLetter leaves such entries pending. The trigger retries them forever: permanent failures at the longest delay of
	// Retry.Entry, and others as usual.
	NoDeadLetter bool

	// Namespace is the luatx.Config.Namespace in whose list of processes (admin.Operator.Processes) the trigger registers itself,
	// on the server of the Connector. Defaults to none: the trigger is not registered. A trigger with a custom Driver is never
	// registered.
	Namespace string

	// Driver is a custom driver. It replaces Mode and the fields of that mode. Run closes it before it returns.
	Driver Driver

	// Retry overrides the Retry of the Connector, field by field.
	Retry Retry
	// Concurrency is the number of places, which is the maximum number of functions that run at the same time. If all places are
	// occupied, the trigger receives nothing. A failed entry leaves its place until its retry is due. Defaults to 1.
	Concurrency int
	// Ordered runs entries strictly in order: a failed entry keeps its place, and later entries wait until it has succeeded or is
	// a dead letter. It requires a Concurrency of 1. Defaults to false: later entries continue.
	Ordered bool
	// BlockTimeout is the time that one read waits for a delivery. It may delay a retry if another place is waiting for a
	// delivery, and it may delay a stop. At least 1 ms. Defaults to 1 s.
	BlockTimeout time.Duration
	// ProgressTimeout is the time after which Health.Ready becomes false if deliveries are in progress or fail, and none
	// succeeds. A waiting entry does not count if its function deferred it by more than that (message.RetryAfter).
	// ProgressTimeout must exceed the time of the slowest function. Defaults to 1 minute.
	ProgressTimeout time.Duration
	// ShutdownTimeout is the time that functions may continue after the context of Run has ended, before their own contexts
	// end. Defaults to 10 s.
	ShutdownTimeout time.Duration
	// Observer is called for each delivery that has run. Defaults to none.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// defaultDeliveries is the default of MaxDeliveries.
const defaultDeliveries = 20

func (c Config) withDefaults() Config {
	c.Channels, c.Patterns = slices.Clone(c.Channels), slices.Clone(c.Patterns)
	if c.Mode == ModeStream {
		if c.LastID == "" {
			c.LastID = "$"
			if c.Group != "" {
				c.LastID = "0"
			}
		}
		if c.DeadLetter == "" && !c.NoDeadLetter {
			c.DeadLetter = group.DeadLetterKey(c.Stream)
		}
	}
	if c.Driver != nil {
		c.Mode = cmp.Or(c.Mode, "custom")
	}
	if c.MaxDeliveries == 0 && !c.NoDeadLetter && (c.Driver != nil || c.Mode == ModeStream) {
		c.MaxDeliveries = defaultDeliveries
	}
	c.BlockTimeout = cmp.Or(c.BlockTimeout, time.Second)
	c.ClaimInterval = cmp.Or(c.ClaimInterval, 30*time.Second)
	c.MaxIdleTime = cmp.Or(c.MaxIdleTime, time.Minute)
	c.Retry = c.Retry.over(c.Connector.Retry).over(defaultRetry)
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.ProgressTimeout = cmp.Or(c.ProgressTimeout, time.Minute)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

var entryID = regexp.MustCompile(`^(\$|[0-9]{1,20}(-[0-9]{1,20})?)$`)

// Validate returns all errors in the options, each as an *OptionError that wraps ErrOption. It does no I/O. Run returns the same
// errors.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	refuse := func(bad bool, option, remedy string) {
		if bad {
			errs = append(errs, wrong(option, remedy))
		}
	}
	refuse(c.Function == "", "Function", "set a name")
	refuse(c.Run == nil, "Run", "set the function to run")
	refuse(c.Concurrency < 0, "Concurrency", "use 0 for the default")
	refuse(c.ShutdownTimeout < 0, "ShutdownTimeout", "use 0 for the default")
	refuse(c.Retry.negative(), "Retry", "use 0 for a default")
	refuse(c.Ordered && c.Concurrency > 1, "Ordered", "set Concurrency to 1, or clear Ordered")
	refuse(c.BlockTimeout < time.Millisecond, "BlockTimeout", "use at least 1 ms, or 0 for the default")
	refuse(c.ProgressTimeout < 0, "ProgressTimeout", "use 0 for the default")
	refuse(c.NoDeadLetter && (c.MaxDeliveries > 0 || c.DeadLetter != ""), "NoDeadLetter", "leave MaxDeliveries and DeadLetter empty, or clear NoDeadLetter")
	if c.Driver != nil {
		return errors.Join(errs...)
	}
	if err := c.Connector.validate(); err != nil {
		errs = append(errs, err)
	}
	switch c.Mode {
	case ModePubSub:
		c.refusePubSub(refuse)
	case ModeStream:
		c.refuseStream(refuse)
	default:
		refuse(true, "Mode", `use "pubsub" or "stream"`)
	}
	return errors.Join(errs...)
}

func (c Config) refusePubSub(refuse func(bool, string, string)) {
	refuse(len(c.Channels)+len(c.Patterns) == 0, "Channels", "set a channel or a pattern")
	refuse(slices.Contains(c.Channels, ""), "Channels", "leave out the empty name")
	refuse(slices.Contains(c.Patterns, ""), "Patterns", "leave out the empty pattern")
	refuse(c.Sharded && len(c.Patterns) > 0, "Patterns", "use Channels; shard channels have no patterns")
	refuse(c.Stream != "", "Stream", "use ModeStream")
	refuse(c.Group != "", "Group", "use ModeStream")
	refuse(c.LastID != "" || c.LastIDKey != "", "LastID", "use ModeStream; published messages are not stored")
	refuse(c.MaxDeliveries > 0, "MaxDeliveries", "use ModeStream; a message is delivered once")
}

func (c Config) refuseStream(refuse func(bool, string, string)) {
	refuse(c.Stream == "", "Stream", "set the key of the stream")
	refuse(len(c.Channels)+len(c.Patterns) > 0 || c.Sharded, "Channels", "use ModePubSub")
	refuse(!entryID.MatchString(c.LastID), "LastID", `use "0", "$" or an id such as 1700000000000-0`)
	refuse(c.LastIDKey != "" && c.Group != "", "LastIDKey", "leave it empty; the group stores its position")
	refuse(c.LastIDKey != "" && c.LastIDKey == c.Stream, "LastIDKey", "use another key than the stream's")
	refuse(c.ClaimInterval < time.Millisecond, "ClaimInterval", "use at least 1 ms, or 0 for the default")
	refuse(c.MaxIdleTime < time.Millisecond, "MaxIdleTime", "use at least 1 ms, or 0 for the default")
	refuse(c.Stream != "" && c.DeadLetter != "" && (c.DeadLetter == c.Stream || slot.Of(c.DeadLetter) != slot.Of(c.Stream)),
		"DeadLetter", "use stream.DeadLetterKey, or another key with the stream's tag in braces; or set NoDeadLetter")
}

// logger returns a logger with the mode, the function, and the stream or the channels.
func (c Config) logger() *slog.Logger {
	log := c.Logger.With("mode", string(c.Mode), "function", c.Function)
	switch {
	case c.Driver != nil:
	case c.Mode == ModePubSub:
		return log.With("channels", slices.Concat(c.Channels, c.Patterns))
	case c.Mode == ModeStream && c.Group != "":
		return log.With("stream", c.Stream, "group", c.Group)
	case c.Mode == ModeStream:
		return log.With("stream", c.Stream)
	}
	return log
}
