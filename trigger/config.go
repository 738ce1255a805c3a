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

// Mode chooses a driver.
type Mode string

// The modes of the drivers of this package.
const (
	ModePubSub Mode = "pubsub"
	ModeStream Mode = "stream"
)

// Func is what a trigger runs for each delivery. The data of the message is the Payload as JSON. A nil error acks the
// entry, any other leaves it pending: message.RetryAfter says when to try again, message.Permanent that it is useless.
//
// The message may be given to an Engine's Process, whose middlewares may acknowledge it in a commit. Settling it otherwise
// is not needed; an error counts more than an Ack. ctx ends when the trigger stops and its ShutdownTimeout is over: a
// function that does not heed it keeps Run from returning.
type Func func(ctx context.Context, msg *message.RawMessage) error

// Config says what a trigger waits for, and what it runs then. Function, Run, a Connector and a Mode with what it needs
// are required.
type Config struct {
	// Function is the name of what is run: in every log line, and in the names of consumers.
	Function string
	// Run is called for each delivery.
	Run Func

	// Connector says how to reach the server.
	Connector Connector
	// Mode is ModePubSub or ModeStream; with a Driver, whatever its log lines are to say.
	Mode Mode

	// Channels and Patterns are subscribed to in ModePubSub; at least one of either.
	Channels, Patterns []string
	// Sharded subscribes to shard channels (Redis 7.0), which in a cluster stay in the shard of their slot. Those that do
	// not share a tag in braces take a connection each.
	Sharded bool

	// Stream is the key of the stream in ModeStream.
	Stream string
	// Group is the consumer group, made where it does not exist. Defaults to none: every such trigger reads all entries
	// by itself, and remembers in memory how far it came.
	Group string
	// LastID is the id behind which reading begins: of a group that is made here, or of a trigger without one. "0" is the
	// whole stream, "$" what is added from the start on. Defaults to "0" with a Group, and to "$" without.
	LastID string
	// LastIDKey is a key in which a trigger without Group keeps how far it has come, so that the next process goes on
	// there. Triggers must not share one. Defaults to none.
	LastIDKey string
	// ClaimInterval is how often entries of other consumers of the Group are looked for. Defaults to 30 s.
	ClaimInterval time.Duration
	// MaxIdleTime is after which time without a sign of its consumer an entry is claimed. A function that takes longer
	// keeps its entry by a heartbeat. Every trigger of a group should have the same. Defaults to 60 s.
	MaxIdleTime time.Duration
	// MaxDeliveries is the number of deliveries, by any process, after which an entry that never succeeded goes to the
	// dead letters. Without a Group only those of this process count. A negative number is no bound. Defaults to 20, which
	// with the default Retry is about three minutes; with NoDeadLetter there is no bound.
	MaxDeliveries int
	// DeadLetter is the key of the stream for what has failed MaxDeliveries times or for good (message.Permanent), and
	// for what no payload can be built of. It must share the tag of Stream. Defaults to stream.DeadLetterKey(Stream), in
	// ModePubSub to none: a message whose payload cannot be built is logged and dropped.
	DeadLetter string
	// NoDeadLetter leaves such entries pending. They are tried again forever: those that failed for good at the longest
	// delay of Retry.Entry, the others as it says.
	NoDeadLetter bool

	// Namespace is the luatx.Config.Namespace in whose list of processes (admin.Operator.Processes) the trigger registers itself,
	// on the server of the Connector. Defaults to none: it is not registered. One with a Driver of your own is never registered.
	Namespace string

	// Driver is one of your own, in place of Mode and what belongs to it. It is closed when Run returns.
	Driver Driver

	// Retry goes before that of the Connector, time by time.
	Retry Retry
	// Concurrency is the number of places: how many functions run at the same time at most. Nothing is received while all
	// places are taken. A failed entry leaves its place until it is due again. Defaults to 1.
	Concurrency int
	// Ordered runs entries strictly in their order: a failed entry keeps its place, and those behind it wait until it has
	// succeeded or is a dead letter. It needs a Concurrency of 1. Defaults to false: entries behind a failed one go on.
	Ordered bool
	// BlockTimeout is how long one read waits for a delivery. If a function fails while another place waits for a delivery,
	// the retry may be late by this time; stopping may take as long too. At least 1 ms. Defaults to 1 s.
	BlockTimeout time.Duration
	// ProgressTimeout is the time after which Health.Ready turns false if deliveries are worked on or fail, and none
	// succeeds. An entry that its function defers by more than that (message.RetryAfter) does not count while it waits. It
	// must exceed the time that the slowest function takes. Defaults to 1 minute.
	ProgressTimeout time.Duration
	// ShutdownTimeout is how long functions may go on when Run is to end, before their contexts end. Defaults to 10 s.
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

// Validate says what is wrong with the options, without asking anybody: all of it, each an *OptionError that wraps
// ErrOption. Run says the same.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	refuse := func(bad bool, option, remedy string) {
		if bad {
			errs = append(errs, wrong(option, remedy))
		}
	}
	refuse(c.Function == "", "Function", "name what is run")
	refuse(c.Run == nil, "Run", "give the function to run")
	refuse(c.Concurrency < 0, "Concurrency", "use 0 for the default")
	refuse(c.ShutdownTimeout < 0, "ShutdownTimeout", "use 0 for the default")
	refuse(c.Retry.negative(), "Retry", "use 0 for a default")
	refuse(c.Ordered && c.Concurrency > 1, "Ordered", "leave Concurrency at 1 with it")
	refuse(c.BlockTimeout < time.Millisecond, "BlockTimeout", "use at least 1 ms, or 0 for the default")
	refuse(c.ProgressTimeout < 0, "ProgressTimeout", "use 0 for the default")
	refuse(c.NoDeadLetter && (c.MaxDeliveries > 0 || c.DeadLetter != ""), "NoDeadLetter", "leave MaxDeliveries and DeadLetter empty with it")
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
	refuse(len(c.Channels)+len(c.Patterns) == 0, "Channels", "name a channel or a pattern")
	refuse(slices.Contains(c.Channels, ""), "Channels", "leave out the empty name")
	refuse(slices.Contains(c.Patterns, ""), "Patterns", "leave out the empty pattern")
	refuse(c.Sharded && len(c.Patterns) > 0, "Patterns", "name channels: shard channels have no patterns")
	refuse(c.Stream != "", "Stream", "use ModeStream for it")
	refuse(c.Group != "", "Group", "use ModeStream for it")
	refuse(c.LastID != "" || c.LastIDKey != "", "LastID", "use ModeStream for it: what was published is gone")
	refuse(c.MaxDeliveries > 0, "MaxDeliveries", "use ModeStream for it: a message comes once")
}

func (c Config) refuseStream(refuse func(bool, string, string)) {
	refuse(c.Stream == "", "Stream", "name the key of the stream")
	refuse(len(c.Channels)+len(c.Patterns) > 0 || c.Sharded, "Channels", "use ModePubSub for them")
	refuse(!entryID.MatchString(c.LastID), "LastID", `use "0", "$" or an id such as 1700000000000-0`)
	refuse(c.LastIDKey != "" && c.Group != "", "LastIDKey", "leave it empty: the group knows how far it has come")
	refuse(c.LastIDKey != "" && c.LastIDKey == c.Stream, "LastIDKey", "use another key than the stream's")
	refuse(c.ClaimInterval < time.Millisecond, "ClaimInterval", "use at least 1 ms, or 0 for the default")
	refuse(c.MaxIdleTime < time.Millisecond, "MaxIdleTime", "use at least 1 ms, or 0 for the default")
	refuse(c.Stream != "" && c.DeadLetter != "" && (c.DeadLetter == c.Stream || slot.Of(c.DeadLetter) != slot.Of(c.Stream)),
		"DeadLetter", "use stream.DeadLetterKey, or another key with the stream's tag in braces; or set NoDeadLetter")
}

// logger names mode, function, and stream or channels on every line.
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
