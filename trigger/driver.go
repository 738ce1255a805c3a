package trigger

import (
	"context"
	"time"
)

// Driver is where deliveries come from. The drivers of this package are chosen by Config.Mode; one of your own goes into
// Config.Driver.
//
// A Runtime calls Reconnect before anything else, NextDelivery and Reconnect never at the same time, Ack and DeadLetter
// whenever a delivery is done, and Close once, when everything else has returned.
type Driver interface {
	// NextDelivery waits for a delivery, for at most about wait. It returns nil without an error if none came, and
	// returns soon after ctx has ended. The Runtime calls Reconnect after an error.
	NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error)
	// Ack tells the source that a delivery is done. It is not called where Delivery.Once is set. After an error it is
	// called again before the entry runs again.
	Ack(ctx context.Context, d *Delivery) error
	// Reconnect makes, or makes anew, all that receiving needs. Earlier deliveries stay delivered.
	Reconnect(ctx context.Context) error
	// Close ends what the driver has begun.
	Close() error
}

// DeadLetterer is a Driver that can set aside what will never succeed. Without one such a delivery is tried again and
// again; one that comes but once is logged and dropped.
type DeadLetterer interface {
	// DeadLetter writes the delivery where an operator finds it, with the reason, and acks it. A retry after an error
	// may write it twice.
	DeadLetter(ctx context.Context, d *Delivery, reason string) error
}

// GapCounter is a Driver that loses what is published while it is not connected, and says when that was.
type GapCounter interface {
	Gaps() Gaps
}

// Delivery is one message of a channel, or one entry of a stream.
type Delivery struct {
	// Channel is where a message was published, and Pattern what it was subscribed to by; empty for an entry.
	Channel, Pattern string
	// Data is the payload of a message.
	Data []byte

	// Stream and ID are of an entry; empty for a message.
	Stream, ID string
	// Group and Consumer are whose entry it is; empty without a group.
	Group, Consumer string
	// Fields are those of an entry.
	Fields map[string]string
	// Attempt counts the deliveries of an entry, this one included; 0: unknown.
	Attempt int64

	// Time is when it was received.
	Time time.Time
	// Once says that it is not delivered again, whatever becomes of it.
	Once bool
	// Done is optional. The Runtime calls it once, when it has finished with the delivery. Settled reports that the
	// delivery was acked, dead-lettered, or acknowledged by a commit; otherwise the driver delivers it again at once. A
	// delivery whose function failed stays with the Runtime until its retry is due.
	Done func(settled bool)
}

func (d *Delivery) done(settled bool) {
	if d.Done != nil {
		d.Done(settled)
	}
}

// key tells entries apart; empty where a delivery has no identity.
func (d *Delivery) key() string {
	if d.ID == "" {
		return ""
	}
	return d.Stream + "\x00" + d.ID
}

// subject is what a log line about the delivery names beside what all lines do.
func (d *Delivery) subject() []any {
	if d.Stream != "" {
		return []any{"entry", d.ID, "attempt", d.Attempt}
	}
	return []any{"channel", d.Channel}
}

// Gap is a time in which nothing could be heard.
type Gap struct {
	// From is the time of the last data on the connection that broke.
	From time.Time
	// Until is when the subscriptions were confirmed again; zero while they are not.
	Until time.Time
}

// Gaps are the gaps of a subscription.
type Gaps struct {
	// Count is how many there were, an open one included.
	Count int64
	// Total is how long those took that are over.
	Total time.Duration
	// Last is the latest.
	Last Gap
}
