package stream

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

// SubscriberConfig configures a Subscriber. Stream and Group are required.
type SubscriberConfig struct {
	// Stream is the key of the stream.
	Stream string
	// Group is the consumer group. Subscribe creates the group and the stream if they do not exist.
	Group string
	// Consumer is the name of the consumer in the group. Two subscribers must not use the same name at the same time. After a
	// restart under the same name, the subscriber delivers its pending entries at once. Defaults to a new name for each
	// subscription, made of the host name, the process id and a random part. The pending entries of such a consumer are
	// claimed after MaxIdleTime. It is removed from the group when its subscription has ended and nothing is pending for it.
	Consumer string
	// StartID is the id after which a group that Subscribe creates begins to read. Defaults to "0", the whole stream; "$"
	// means entries added after Subscribe. If the group is deleted, the subscriber creates it again at the same position.
	StartID string
	// BatchSize is the maximum number of entries per read. Defaults to 10.
	BatchSize int
	// MaxInFlight is the maximum number of messages that are delivered and not yet settled, including those in the channel.
	// Defaults to BatchSize.
	MaxInFlight int
	// BlockTimeout is how long the server waits for new entries. A subscription takes as long to end. Defaults to 1 s; at
	// least 1 ms.
	BlockTimeout time.Duration
	// ClaimInterval is the interval at which the subscriber looks for entries that other consumers left behind. Defaults to 30
	// s.
	ClaimInterval time.Duration
	// MaxIdleTime is the time without a heartbeat of its consumer after which an entry is claimed from it. Consumers without
	// pending entries are removed after ten times MaxIdleTime and ten times ClaimInterval. Use the same value for every
	// subscriber of a group. Defaults to 60 s.
	MaxIdleTime time.Duration
	// NoHeartbeat disables the heartbeat of messages in flight. MaxIdleTime must then exceed the time that the slowest handler
	// needs, including the wait for a free worker, and a handler that hangs loses its message to another consumer. With a
	// heartbeat, a message stays with its consumer while the process runs and reaches the server. Defaults to false.
	NoHeartbeat bool
	// MaxDeliveries is the number of deliveries, over all consumers, after which an entry that is not acked goes to the
	// dead-letter stream. Deliveries whose reply was lost count too, so leave some room. Defaults to 0: no limit.
	MaxDeliveries int
	// DeadLetter is the key of the dead-letter stream, which must hash to the slot of Stream. If it or MaxDeliveries is set,
	// messages that fail with message.Permanent or cannot be decoded become dead letters at once. Defaults to
	// DeadLetterKey(Stream) if MaxDeliveries is set, and to none otherwise.
	DeadLetter string
	// NackBackoff is the delay before a nacked message is delivered again, unless its error requests one. If the delay exceeds
	// MaxIdleTime, another subscriber may claim the message first. Defaults to 100 ms, doubled with each nack up to 30 s, with
	// full jitter.
	NackBackoff message.Backoff
	// Unmarshal decodes an entry into a message. If the message has no id, it gets the entry's; if it has no source, it gets
	// the stream's key. Defaults to the function Unmarshal of this package.
	Unmarshal func(id string, values map[string]any) (*message.RawMessage, error)
	// Codecs undo the codecs of the Publisher, which they match by name. At most 2. Defaults to none: data is delivered
	// unchanged.
	Codecs []Codec
	// MaxDecodedBytes bounds the data in flight that codecs have decoded, in bytes. A message that would exceed the bound
	// waits until others are settled, which counts no delivery. A message that exceeds it alone is delivered alone. A
	// PartitionedSubscriber applies the bound to each partition. Defaults to 256 MiB.
	MaxDecodedBytes int64
	// DeleteAcked deletes an entry when it is acknowledged, in one step. Use it for a stream that no other group reads. It
	// does not delete entries that a commit acknowledges (luatx.Middleware); use TrimAcked for those. Defaults to false.
	DeleteAcked bool
	// TrimAcked trims entries that every group has acknowledged, once per ClaimInterval. Use it for a stream that several
	// groups read. See the function TrimAcked. Defaults to false.
	TrimAcked bool
	// Namespace is a luatx.Config.Namespace. Subscribe registers the Subscriber in its list of processes
	// (admin.Operator.Processes). Defaults to none: Subscribe does not register it. Consume always registers it in the
	// namespace of its Transactor.
	Namespace string
	// ShutdownTimeout is how long handlers may continue after the context has ended. It applies to Consume and to messages
	// from PartitionedSubscriber.Subscribe. Defaults to 10 s.
	ShutdownTimeout time.Duration
	// Observer is notified of deliveries, settlements and dead letters. Defaults to none.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

var startID = regexp.MustCompile(`^(\$|[0-9]{1,20}(-[0-9]{1,20})?)$`)

func (c SubscriberConfig) withDefaults() SubscriberConfig {
	c.StartID = cmp.Or(c.StartID, "0")
	c.BatchSize = cmp.Or(c.BatchSize, 10)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, c.BatchSize)
	c.BlockTimeout = cmp.Or(c.BlockTimeout, time.Second)
	c.ClaimInterval = cmp.Or(c.ClaimInterval, 30*time.Second)
	c.MaxIdleTime = cmp.Or(c.MaxIdleTime, time.Minute)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	if c.MaxDeliveries > 0 && c.DeadLetter == "" {
		c.DeadLetter = DeadLetterKey(c.Stream)
	}
	c.MaxDecodedBytes = cmp.Or(c.MaxDecodedBytes, 256<<20)
	c.Codecs = slices.Clone(c.Codecs)
	if c.Unmarshal == nil {
		c.Unmarshal = Unmarshal
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// flaws collects the errors of a config.
type flaws struct {
	config string
	errs   []error
}

func (f *flaws) check(bad bool, field, remedy string) {
	if bad {
		f.errs = append(f.errs, fmt.Errorf("stream: %s.%s %s", f.config, field, remedy))
	}
}

func (f *flaws) checkCodecs(codecs []Codec) {
	if err := checkCodecs(codecs); err != nil {
		f.errs = append(f.errs, fmt.Errorf("stream: %s.Codecs: %w", f.config, err))
	}
}

func (f *flaws) err() error { return errors.Join(f.errs...) }

func (c SubscriberConfig) validate() error {
	f := flaws{config: "SubscriberConfig"}
	f.check(c.Stream == "", "Stream", "is empty; name the key of the stream")
	f.check(c.Group == "", "Group", "is empty; name the consumer group")
	f.check(!startID.MatchString(c.StartID), "StartID", `is no entry id: use "0", "$" or an id such as 1700000000000-0`)
	f.check(c.BatchSize < 0, "BatchSize", "is negative; use 0 for the default")
	f.check(c.MaxInFlight < 0, "MaxInFlight", "is negative; use 0 for the default")
	f.check(c.BlockTimeout < time.Millisecond, "BlockTimeout", "is below 1 ms; use 0 for the default")
	f.check(c.ClaimInterval < time.Millisecond, "ClaimInterval", "is below 1 ms; use 0 for the default")
	f.check(c.MaxIdleTime < time.Millisecond, "MaxIdleTime", "is below 1 ms; use 0 for the default")
	f.check(c.ShutdownTimeout < 0, "ShutdownTimeout", "is negative; use 0 for the default")
	f.check(c.MaxDeliveries < 0, "MaxDeliveries", "is negative; use 0 for no bound")
	f.check(c.DeadLetter != "" && (c.DeadLetter == c.Stream || slot.Of(c.DeadLetter) != slot.Of(c.Stream)),
		"DeadLetter", "is the stream itself or hashes to another slot: use DeadLetterKey, or the stream's tag in braces")
	f.check(c.MaxDecodedBytes < 0, "MaxDecodedBytes", "is negative; use 0 for the default")
	f.check(c.NackBackoff.Base < 0 || c.NackBackoff.Max < 0, "NackBackoff", "has a negative time; use 0 for the default")
	f.check(c.DeleteAcked && c.TrimAcked, "DeleteAcked", "is set, and TrimAcked: one of them is enough")
	f.checkCodecs(c.Codecs)
	return f.err()
}
