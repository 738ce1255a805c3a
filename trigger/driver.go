package trigger

import (
	"context"
	"time"
)

// Driver is a source of deliveries. Config.Mode selects a driver of this package, and Config.Driver sets a custom one. A Runtime
// calls Reconnect first. It never calls NextDelivery and Reconnect at the same time. It calls Ack and DeadLetter when a delivery
// is finished, and Close once, after all other calls have returned.
type Driver interface {
	// NextDelivery waits for a delivery, for at most about wait. It returns nil without an error if none came, and
	// returns soon after ctx has ended. The Runtime calls Reconnect after an error.
	NextDelivery(ctx context.Context, wait time.Duration) (*Delivery, error)
	// Ack reports to the source that a delivery succeeded. The Runtime does not call it if Delivery.Once is set. After an
	// error, the Runtime calls it again before the entry runs again.
	Ack(ctx context.Context, d *Delivery) error
	// Reconnect creates or recreates the connections for receiving. Earlier deliveries stay delivered.
	Reconnect(ctx context.Context) error
	// Close releases the resources of the driver.
	Close() error
}

// DeadLetterer is a Driver that can store dead letters. Without one, the Runtime retries such a delivery forever, or logs and
// drops it if it comes only once.
type DeadLetterer interface {
	// DeadLetter stores the delivery and the reason for an operator, and acks it. A retry after an error may store it twice.
	DeadLetter(ctx context.Context, d *Delivery, reason string) error
}

// GapCounter is a Driver that loses messages that are published while it is not connected, and reports those times.
type GapCounter interface {
	Gaps() Gaps
}

// Delivery is one message of a channel, or one entry of a stream.
type Delivery struct {
	// Channel is the channel of a message, and Pattern the subscribed pattern that matched. They are empty for an entry.
	Channel, Pattern string
	// Data is the payload of a message.
	Data []byte

	// Stream and ID identify an entry. They are empty for a message.
	Stream, ID string
	// Group and Consumer own the entry. They are empty without a group.
	Group, Consumer string
	// Fields are the fields of an entry.
	Fields map[string]string
	// Attempt counts the deliveries of an entry, including this one. 0 means unknown.
	Attempt int64

	// Time is the time of receipt.
	Time time.Time
	// Once means that the source never delivers it again.
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

// key identifies an entry. It is empty for a delivery without an identity.
func (d *Delivery) key() string {
	if d.ID == "" {
		return ""
	}
	return d.Stream + "\x00" + d.ID
}

// subject returns the attributes of log lines about the delivery.
func (d *Delivery) subject() []any {
	if d.Stream != "" {
		return []any{"entry", d.ID, "attempt", d.Attempt}
	}
	return []any{"channel", d.Channel}
}

// Gap is a time without a subscription.
type Gap struct {
	// From is the time of the last reply on the broken connection.
	From time.Time
	// Until is the time of the new subscription. It is zero while there is none.
	Until time.Time
}

// Gaps summarizes the gaps of a subscription.
type Gaps struct {
	// Count is the number of gaps, including an open one.
	Count int64
	// Total is the total length of the closed gaps.
	Total time.Duration
	// Last is the latest.
	Last Gap
}
