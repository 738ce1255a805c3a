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
	// ErrOpen is returned by Record where the subject has an open timer that is due at another time, which stays as it
	// is: move it by Extend.
	ErrOpen = errors.New("expiry: the subject has a timer for another time")

	// ErrRevoked is returned by Record for a subject whose timer was revoked within the Transactor's retention. It gets
	// no new one: a late copy of what recorded the first must not bring it back. Timers that may come again are ended
	// by Cancel.
	ErrRevoked = errors.New("expiry: the subject's timer was revoked")
)

// Config configures a Store. Its zero value works.
type Config struct {
	// Aggregate names the aggregate of a subject, whose slot the timer lives in: "order-17" for "order-17/payment".
	// It must always give the same answer. Defaults to the subject itself.
	Aggregate func(subject string) (string, error)

	// EventID returns the id of the event of a subject's timer. It gets the time in UTC, cut to milliseconds. It must
	// return the same id for the same arguments in every process, so that a retry makes the same event, and another id
	// for every other subject and time: the outbox takes each id once. Use JavaEventID for the ids of a program in Java.
	// Defaults to the function EventID.
	EventID func(subject string, due time.Time) string

	// RevokedKey names a key of the subject's slot whose existence revokes its timer, for services that write such a
	// key in a transaction of their own; Keyspace.Key builds it. Decide reads it inside its script. Empty: there is
	// none for this subject. Defaults to none.
	RevokedKey func(subject string) (string, error)
}

// Timer is an open timer.
type Timer struct {
	// Subject is what it is about: up to 256 bytes of UTF-8.
	Subject string
	// Due is when, by the server's clock, cut to milliseconds.
	Due time.Time
}

// Store operates on the timers in a Transactor's shards. It is safe for concurrent use. Every operation may be repeated;
// it is tried for the Transactor's CommitTimeout, where ctx does not end before.
type Store struct {
	transactor *luatx.Transactor
	scripts    *shard.Scripts
	keyspace   luatx.Keyspace
	cfg        Config
}

// New returns the store of a Transactor. It does no I/O.
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

// Record opens the timer of a subject. A time that has passed is due at once. Again for the same time it changes
// nothing, also after the timer has fired. See ErrOpen and ErrRevoked.
func (s *Store) Record(ctx context.Context, subject string, due time.Time) error {
	switch done, err := s.set(ctx, "record", subject, due); {
	case err != nil:
		return err
	case done == "open":
		return fmt.Errorf("%w: %q: move it by Extend", ErrOpen, subject)
	case done == "revoked":
		return fmt.Errorf("%w: %q", ErrRevoked, subject)
	}
	return nil
}

// Extend moves the open timer of a subject to another time, later or earlier; false where none is open. What was found
// due before and is decided after it is NotDue.
func (s *Store) Extend(ctx context.Context, subject string, due time.Time) (bool, error) {
	done, err := s.set(ctx, "extend", subject, due)
	return done == "extended", err
}

// Cancel ends the open timer of a subject, with no event and no memory of it; false where none is open. The subject may
// be recorded again.
func (s *Store) Cancel(ctx context.Context, subject string) (bool, error) {
	return s.cancel(ctx, Timer{Subject: subject, Due: time.UnixMilli(0)})
}

// cancel ends a timer that is due when this one is; at the epoch: whenever.
func (s *Store) cancel(ctx context.Context, timer Timer) (bool, error) {
	done, err := s.set(ctx, "cancel", timer.Subject, timer.Due)
	return done == "cancelled", err
}

// Revoke ends the open timer of a subject for good, and an event that says so enters the outbox in the same step; a nil
// event: none does. It is true where the subject is revoked, by this call or one before within the Transactor's
// retention, whose event it was then. It is false where no timer was open: it fired, was cancelled, or was never
// recorded; nothing happens then. An event without an id gets RevokedID. See luatx.ErrOutboxFull.
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
		return false, fmt.Errorf("expiry: revoke %q: the event %s is known with another body: give it another id", subject, sent.ID)
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
		return fmt.Errorf("expiry: %s %q: the year %d: use 1970 to 9999", what, subject, y)
	}
	return nil
}

func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.transactor.Config().CommitTimeout)
}

// maxSubject is the longest subject, in bytes.
const maxSubject = 256

// shard is where the timer of a subject lives.
func (s *Store) shard(subject string) (shard.Shard, error) {
	if subject == "" || len(subject) > maxSubject || !utf8.ValidString(subject) {
		return shard.Shard{}, fmt.Errorf("expiry: the subject %.40q: use 1 to %d bytes of UTF-8", subject, maxSubject)
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

// eventID returns the id of the event of a timer.
func (s *Store) eventID(timer Timer) (string, error) {
	id := s.cfg.EventID(timer.Subject, time.UnixMilli(timer.Due.UnixMilli()).UTC())
	if id == "" || !utf8.ValidString(id) {
		return "", fmt.Errorf("Config.EventID returned %q: return a text in UTF-8 that is not empty", id)
	}
	return id, nil
}

// encode writes a message as an event of that id.
func encode(msg *message.Message, id string) (shard.Event, error) {
	event := message.New(msg.Data, maps.Clone(msg.Attributes), nil)
	event.Attributes[message.AttrID] = id
	if event.Type() == "" || event.Source() == "" {
		return shard.Event{}, errors.New("expiry: the event has no type or no source: set both")
	}
	body, err := event.MarshalJSON()
	if err != nil {
		return shard.Event{}, fmt.Errorf("expiry: event %s: %w", id, err)
	}
	return shard.Event{ID: id, Body: body, Given: true}, nil
}
