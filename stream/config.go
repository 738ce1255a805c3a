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

// SubscriberConfig says what a Subscriber reads, and how. Stream and Group are required.
type SubscriberConfig struct {
	// Stream is the key of the stream.
	Stream string
	// Group is the consumer group; it is made, and the stream with it, where it does not exist.
	Group string
	// Consumer is the name in the group. Two subscribers must not share one at the same time. Defaults to the host
	// name, the process id and a random part, new for every subscription; such a consumer is removed from the group
	// when its subscription has ended and nothing of it is pending. Where one is set, what it left pending is read
	// again at once when it subscribes again; else that is claimed after MaxIdleTime.
	Consumer string
	// StartID is where a group begins that is made here: after the entry of this id. Defaults to "0", the whole
	// stream; "$" means what is added from Subscribe on. It matters again when the group is deleted: it is made anew
	// at the same place.
	StartID string
	// BatchSize is how many entries are read at once at most. Defaults to 10.
	BatchSize int
	// MaxInFlight is how many messages are given out and not yet settled at most; those that wait in the channel
	// count. Defaults to BatchSize.
	MaxInFlight int
	// BlockTimeout is how long the server is asked to wait for new entries; a subscription takes as long to end.
	// At least 1 ms. Defaults to 1 s.
	BlockTimeout time.Duration
	// ClaimInterval is how often entries that others left behind are looked for. Defaults to 30 s.
	ClaimInterval time.Duration
	// MaxIdleTime is after which time without a sign of its consumer an entry is claimed from it. Consumers that have
	// nothing pending are removed after ten times that, and ten times ClaimInterval. Every subscriber of a group should
	// have the same. Defaults to 60 s.
	MaxIdleTime time.Duration
	// NoHeartbeat gives no signs while a message is worked on. MaxIdleTime must then exceed the time that the slowest
	// handler takes, waiting for a free worker included; and a handler that hangs loses its message to another consumer.
	// By default a slow one keeps it, as long as its process lives and reaches the server.
	NoHeartbeat bool
	// MaxDeliveries is after how many deliveries, by whichever process, an entry that is not acked goes to the
	// dead-letter stream. One whose reply was lost on the way counts too, so leave some room. Defaults to 0: it is
	// delivered for ever.
	MaxDeliveries int
	// DeadLetter is the key of the dead-letter stream; it must hash to the slot of Stream. Where it is set, or
	// MaxDeliveries is, what was refused for good (message.Permanent) and what cannot be decoded goes there at once.
	// Defaults to DeadLetterKey(Stream) with MaxDeliveries, to none without.
	DeadLetter string
	// NackBackoff is when nacked messages are given out again where their error does not say. Past MaxIdleTime
	// another subscriber may claim them first. Defaults to 100 ms, doubled with each nack up to 30 s, full jitter.
	NackBackoff message.Backoff
	// Unmarshal makes a message of an entry. Defaults to Unmarshal of this package. Where the message has no id it
	// gets the entry's, and where it has no source the stream's key.
	Unmarshal func(id string, values map[string]any) (*message.RawMessage, error)
	// Codecs undo what the codecs of the Publisher did, by their names. At most 2. Defaults to none: data is given out as it
	// is.
	Codecs []Codec
	// MaxDecodedBytes bounds the data in flight that codecs have decoded, in bytes. A message that would exceed the bound
	// waits until others are settled; one that exceeds it alone is given out alone. In a PartitionedSubscriber the bound
	// holds for each partition. Defaults to 256 MiB.
	MaxDecodedBytes int64
	// DeleteAcked deletes an entry with its acknowledgement, in one step: for a stream that no other group reads.
	// Entries that a commit acknowledges (luatx.Middleware) stay; TrimAcked trims them.
	DeleteAcked bool
	// TrimAcked trims what every group has acknowledged, once every ClaimInterval: for a stream that several groups read.
	// See the function TrimAcked.
	TrimAcked bool
	// Namespace is the luatx.Config.Namespace in whose list of processes (admin.Operator.Processes) Subscribe registers the
	// Subscriber. Defaults to none: it is not registered. Consume registers it in the namespace of its Transactor.
	Namespace string
	// ShutdownTimeout is how long handlers of Consume, and of what PartitionedSubscriber.Subscribe gave out, may go on after
	// the context has ended. Defaults to 10 s.
	ShutdownTimeout time.Duration
	// Observer is told what becomes of entries. Defaults to nobody.
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

// flaws collects what is wrong with the fields of a config.
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
	f.check(c.Stream == "", "Stream", "is empty: name the key of the stream")
	f.check(c.Group == "", "Group", "is empty: name the consumer group")
	f.check(!startID.MatchString(c.StartID), "StartID", `is no entry id: use "0", "$" or an id such as 1700000000000-0`)
	f.check(c.BatchSize < 0, "BatchSize", "is negative: use 0 for the default")
	f.check(c.MaxInFlight < 0, "MaxInFlight", "is negative: use 0 for the default")
	f.check(c.BlockTimeout < time.Millisecond, "BlockTimeout", "is below 1 ms: use 0 for the default")
	f.check(c.ClaimInterval < time.Millisecond, "ClaimInterval", "is below 1 ms: use 0 for the default")
	f.check(c.MaxIdleTime < time.Millisecond, "MaxIdleTime", "is below 1 ms: use 0 for the default")
	f.check(c.ShutdownTimeout < 0, "ShutdownTimeout", "is negative: use 0 for the default")
	f.check(c.MaxDeliveries < 0, "MaxDeliveries", "is negative: use 0 for no bound")
	f.check(c.DeadLetter != "" && (c.DeadLetter == c.Stream || slot.Of(c.DeadLetter) != slot.Of(c.Stream)),
		"DeadLetter", "is the stream itself or hashes to another slot: use DeadLetterKey, or the stream's tag in braces")
	f.check(c.MaxDecodedBytes < 0, "MaxDecodedBytes", "is negative: use 0 for the default")
	f.check(c.NackBackoff.Base < 0 || c.NackBackoff.Max < 0, "NackBackoff", "has a negative time: use 0 for the default")
	f.check(c.DeleteAcked && c.TrimAcked, "DeleteAcked", "is set, and TrimAcked: one of them is enough")
	f.checkCodecs(c.Codecs)
	return f.err()
}
