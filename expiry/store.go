package expiry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/message"
)

var (
	// ErrOpen is returned by Record if the subject has an open timer with another time. The timer stays unchanged; use Extend to
	// move it.
	ErrOpen = errors.New("expiry: the subject has a timer for another time")

	// ErrRevoked is returned by Record for a subject whose timer was revoked within the Transactor's retention. The subject gets
	// no new timer, because a late copy of the first Record must not restore it. Use Cancel for timers that may be recorded
	// again.
	ErrRevoked = errors.New("expiry: the subject's timer was revoked")
)

// Config configures a Store. The zero value is usable.
type Config struct {
	// Aggregate returns the aggregate of a subject, on whose slot the timer is stored: "order-17" for "order-17/payment". It must
	// always return the same aggregate for a subject. Defaults to the subject itself.
	Aggregate func(subject string) (string, error)

	// EventID returns the id of the event of a subject's timer. The time is in UTC, truncated to milliseconds. EventID must
	// return the same id for the same arguments in every process, so that a retry creates the same event, and a different id for
	// every other subject and time, because the outbox accepts each id once. Use JavaEventID for the ids of a Java program.
	// Defaults to the function EventID.
	EventID func(subject string, due time.Time) string

	// RevokedKey returns a key of the subject's slot whose existence revokes its timer, for services that write such a key in
	// their own transactions. Build it with Keyspace.Key. Decide reads it inside its script. An empty key means that the subject
	// has none. Defaults to none.
	RevokedKey func(subject string) (string, error)
}

// Timer is an open timer.
type Timer struct {
	// Subject identifies the timer, with up to 256 bytes of UTF-8.
	Subject string
	// Due is when the timer is due by the server's clock, truncated to milliseconds.
	Due time.Time
}

// Store operates on the timers in a Transactor's shards. It is safe for concurrent use. Every operation may be repeated. An
// operation is retried until ctx ends, for at most the Transactor's CommitTimeout.
type Store struct {
	transactor *luatx.Transactor
	scripts    *shard.Scripts
	keyspace   luatx.Keyspace
	cfg        Config
}

// New returns the store of a Transactor. It does no I/O. It returns an error if t is nil.
func New(t *luatx.Transactor, cfg Config) (*Store, error) {
	if t == nil {
		return nil, errors.New("expiry: New needs a Transactor")
	}
	if cfg.Aggregate == nil {
		cfg.Aggregate = func(subject string) (string, error) { return subject, nil }
	}
	if cfg.EventID == nil {
		cfg.EventID = EventID
	}
	if cfg.RevokedKey == nil {
		cfg.RevokedKey = func(string) (string, error) { return "", nil }
	}
	return &Store{t, link.Of(t).Scripts, t.Keyspace(), cfg}, nil
}

// Record opens the timer of a subject. If due has passed, the timer is due at once. Another call with the same time changes
// nothing, even after the timer has fired. Record returns ErrOpen or ErrRevoked if it cannot open the timer.
func (s *Store) Record(ctx context.Context, subject string, due time.Time) error {
	switch done, err := s.set(ctx, "record", subject, due); {
	case err != nil:
		return err
	case done == "open":
		return fmt.Errorf("%w: %q; move it with Extend", ErrOpen, subject)
	case done == "revoked":
		return fmt.Errorf("%w: %q", ErrRevoked, subject)
	}
	return nil
}

// Extend moves the open timer of a subject to a later or earlier time, and returns false if none is open. If the timer was found
// due before but is decided afterwards, Decide returns NotDue.
func (s *Store) Extend(ctx context.Context, subject string, due time.Time) (bool, error) {
	done, err := s.set(ctx, "extend", subject, due)
	return done == "extended", err
}

// Cancel ends the open timer of a subject without an event or a trace, and returns false if none is open. The subject may be
// recorded again.
func (s *Store) Cancel(ctx context.Context, subject string) (bool, error) {
	return s.cancel(ctx, Timer{Subject: subject, Due: time.UnixMilli(0)})
}

// cancel ends the timer if it is due at the given time, or in any case if that is the epoch.
func (s *Store) cancel(ctx context.Context, timer Timer) (bool, error) {
	done, err := s.set(ctx, "cancel", timer.Subject, timer.Due)
	return done == "cancelled", err
}

// Revoke ends the open timer of a subject for good and adds an event to the outbox in the same step, unless event is nil. It
// returns true if the subject is revoked, by this call or by one within the Transactor's retention, which then added its own
// event. It returns false and changes nothing if no timer was open, because it fired, was cancelled, or was never recorded. An
// event without an id gets RevokedID. If the outbox is full, Revoke returns luatx.ErrOutboxFull.
func (s *Store) Revoke(ctx context.Context, subject string, event *message.Message) (bool, error) {
	home, err := s.shard(subject)
	if err != nil {
		return false, err
	}
	var sent *shard.Event
	if event != nil {
		id := event.ID()
		if id == "" {
			id = RevokedID(subject)
		}
		encoded, err := encode(event, id)
		if err != nil {
			return false, err
		}
		sent = &encoded
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	done, err := s.scripts.Revoke(ctx, home, subject, sent)
	switch {
	case err != nil:
		return false, fmt.Errorf("expiry: revoke %q: %w", subject, err)
	case done == "full":
		return false, fmt.Errorf("expiry: revoke %q: %w", subject, luatx.ErrOutboxFull)
	case done == "other":
		return false, fmt.Errorf("expiry: revoke %q: the outbox has the event %s with another body; use another id", subject, sent.ID)
	case done == "revoked" && sent != nil:
		link.Of(s.transactor).Announce(home.Slot, *sent)
	}
	return done == "revoked", nil
}

func (s *Store) set(ctx context.Context, what, subject string, due time.Time) (string, error) {
	home, err := s.shard(subject)
	if err != nil {
		return "", err
	}
	if err := checkDue(what, subject, due); err != nil {
		return "", err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	done, err := s.scripts.SetTimer(ctx, home, what, shard.Timer{Subject: subject, Due: due})
	if err != nil {
		return "", fmt.Errorf("expiry: %s %q: %w", what, subject, err)
	}
	return done, nil
}

func checkDue(what, subject string, due time.Time) error {
	if y := due.UTC().Year(); y < 1970 || y > 9999 {
		return fmt.Errorf("expiry: %s %q: the year is %d; use 1970 to 9999", what, subject, y)
	}
	return nil
}

func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.transactor.Config().CommitTimeout)
}

// maxSubject is the maximum size of a subject, in bytes.
const maxSubject = 256

func (s *Store) shard(subject string) (shard.Shard, error) {
	if subject == "" || len(subject) > maxSubject || !utf8.ValidString(subject) {
		return shard.Shard{}, fmt.Errorf("expiry: the subject is %.40q; use 1 to %d bytes of UTF-8", subject, maxSubject)
	}
	aggregate, err := s.cfg.Aggregate(subject)
	if err != nil {
		return shard.Shard{}, fmt.Errorf("expiry: Config.Aggregate of %q: %w", subject, err)
	}
	tag, err := s.keyspace.Tag(aggregate)
	if err != nil {
		return shard.Shard{}, fmt.Errorf("expiry: the aggregate of %q: %w", subject, err)
	}
	return s.scripts.Shard(slot.OfTag(tag)), nil
}

func (s *Store) eventID(timer Timer) (string, error) {
	id := s.cfg.EventID(timer.Subject, time.UnixMilli(timer.Due.UnixMilli()).UTC())
	if id == "" || !utf8.ValidString(id) {
		return "", fmt.Errorf("Config.EventID returned %q; return non-empty UTF-8 text", id)
	}
	return id, nil
}

// encode encodes a message as an event with the given id. It returns an error if the message has no type or no source.
func encode(msg *message.Message, id string) (shard.Event, error) {
	event := message.New(msg.Data, maps.Clone(msg.Attributes), nil)
	event.Attributes[message.AttrID] = id
	if event.Type() == "" || event.Source() == "" {
		return shard.Event{}, errors.New("expiry: the event has no type or no source; set both")
	}
	body, err := event.MarshalJSON()
	if err != nil {
		return shard.Event{}, fmt.Errorf("expiry: event %s: %w", id, err)
	}
	return shard.Event{ID: id, Body: body, Given: true}, nil
}
