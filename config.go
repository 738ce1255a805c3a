package luatx

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/luatx/luatx/message"
)

// Config configures a Transactor. Namespace is required; the zero value of everything else works.
type Config struct {
	// Namespace leads every key that luatx keeps: two services on one Redis do not see each other's ids and
	// events. Letters, digits, dots, dashes and underscores, at most 64. Required.
	Namespace string

	// Keyspace maps aggregates to tags. Defaults to OwnTags().
	Keyspace Keyspace

	// Aggregate names the aggregate that a message is about, before its handler runs: a redelivery must land on
	// the same slot. Defaults to the message's subject, else to the tag of the stream it was read from.
	Aggregate func(*message.Message) (string, error)

	// Retention is how long an id is known at least, and at most twice that. Defaults to 24 hours; at least ten
	// times CommitTimeout.
	Retention time.Duration

	// CommitTimeout bounds a commit with its retries, where the caller's deadline does not come first; a copy
	// of it that the network delivers later than that changes nothing. Defaults to 30 seconds; at most 5 minutes.
	CommitTimeout time.Duration

	// OutboxCapacity is the most events that may wait in one shard; parked ones count apart. Defaults to 100,000.
	OutboxCapacity int

	// OutboxBytes is the most bytes of their bodies. Defaults to 64 MiB.
	OutboxBytes int

	// ParkedCapacity is the number of parked events of one shard from which on it takes no more events; what it holds
	// may still be parked. Defaults to 100,000.
	ParkedCapacity int

	// ParkedBytes is the size of the bodies of parked events of one shard, in bytes, from which on the shard accepts no more
	// events; its pending events may still be parked. Defaults to 256 MiB.
	ParkedBytes int

	// LaneCapacity is the most events of one ordering key, a parked one at its head included: a lane that stands still
	// leaves the others their room. Defaults to 10,000.
	LaneCapacity int

	// MaxCommands is the most commands, events and guarded reads of one transaction, at most 65,535. Defaults to 10,000.
	MaxCommands int

	// MaxBytes is the most bytes of one transaction's commands, events and guarded reads. Defaults to 8 MiB.
	MaxBytes int

	// UndoBytes is the largest key that is copied in order to undo a command without a cheaper inverse (DEL,
	// XADD, LPOP …), unless it is the last one. Defaults to 1 MiB.
	UndoBytes int

	// GuardBytes is the most bytes of the replies to all guarded reads of one transaction, where each element of a reply
	// counts with 64 bytes besides. The server computes the digest of that much in the read, again in the commit, and both
	// again in each of ConflictRetries. Defaults to 1 MiB, at most 16,000 elements.
	GuardBytes int

	// ConflictRetries is how often a handler, or the function of a call, runs again because what it had read has
	// changed before its commit. Defaults to 32; negative: never.
	ConflictRetries int

	// Procedures are what Tx.Call can call. Their text is part of the commit script.
	Procedures []Procedure

	// ProcedureCalls is the most calls of redis.call and redis.pcall in one run of a procedure: a script that has
	// written cannot be stopped from outside. Defaults to 1,000.
	ProcedureCalls int

	// KeepBytes is the most bytes of replies that a transaction with KeepReplies keeps; beyond it they are not
	// kept. Defaults to 64 KiB.
	KeepBytes int

	// NoCompile sends every transaction through the general script. By default a transaction whose plan (the sequence of its
	// commands, with the number of their arguments, and its events) has been sent 100 times goes through a script that is made
	// for that plan, at half the cost for the server and with the same outcome.
	NoCompile bool

	// Durability makes a commit wait until replicas, or disks, have it. Defaults to no wait.
	Durability Durability

	// NoWakeUps switches off what tells the relays of other processes of a commit that has events due, where no relay
	// of this process publishes them: a PUBLISH on the side, SPUBLISH from Redis 7.0 on. They find them by their sweep.
	NoWakeUps bool

	// NoRegistration keeps the relays, consumers and workers of this Transactor out of the list of running processes, which
	// admin.Operator.Processes reads. By default each registers itself, and sends a heartbeat every 10 seconds.
	NoRegistration bool

	// StrictEviction makes Check fail where the server may evict keys; otherwise it warns.
	StrictEviction bool

	// Observer is told what became of each commit. Defaults to nobody, which costs nothing.
	Observer Observer

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	maxCommitTimeout = 5 * time.Minute
	maxCommands      = 1<<16 - 1 // as many as a plan can count
)

func (c Config) withDefaults() Config {
	c.Retention = cmp.Or(c.Retention, 24*time.Hour)
	c.CommitTimeout = cmp.Or(c.CommitTimeout, 30*time.Second)
	c.OutboxCapacity = cmp.Or(c.OutboxCapacity, 100_000)
	c.OutboxBytes = cmp.Or(c.OutboxBytes, 64<<20)
	c.ParkedCapacity = cmp.Or(c.ParkedCapacity, 100_000)
	c.ParkedBytes = cmp.Or(c.ParkedBytes, 256<<20)
	c.LaneCapacity = cmp.Or(c.LaneCapacity, 10_000)
	c.MaxCommands = cmp.Or(c.MaxCommands, 10_000)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<20)
	c.UndoBytes = cmp.Or(c.UndoBytes, 1<<20)
	c.GuardBytes = cmp.Or(c.GuardBytes, 1<<20)
	c.ConflictRetries = cmp.Or(c.ConflictRetries, 32)
	c.ProcedureCalls = cmp.Or(c.ProcedureCalls, 1000)
	c.KeepBytes = cmp.Or(c.KeepBytes, 64<<10)
	c.Durability = c.Durability.withDefaults()
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Aggregate == nil {
		c.Aggregate = func(msg *message.Message) (string, error) { return msg.Subject(), nil }
	}
	return c
}

func (c Config) validate() error {
	if c.Namespace == "" {
		return errors.New("luatx: Config.Namespace is empty: name the service, as in \"orders\"")
	}
	if !namespacePattern.MatchString(c.Namespace) {
		return fmt.Errorf("luatx: Config.Namespace %.80q: use at most 64 letters, digits, dots, dashes and underscores", c.Namespace)
	}
	if c.CommitTimeout < 0 || c.CommitTimeout > maxCommitTimeout {
		return fmt.Errorf("luatx: Config.CommitTimeout is %v: use more than 0 and at most %v", c.CommitTimeout, maxCommitTimeout)
	}
	if c.Retention < 10*c.CommitTimeout {
		return fmt.Errorf("luatx: Config.Retention is %v: use at least ten times CommitTimeout, %v", c.Retention, 10*c.CommitTimeout)
	}
	for name, value := range map[string]int{
		"OutboxCapacity": c.OutboxCapacity, "OutboxBytes": c.OutboxBytes, "ParkedCapacity": c.ParkedCapacity, "ParkedBytes": c.ParkedBytes,
		"LaneCapacity": c.LaneCapacity, "MaxCommands": c.MaxCommands, "MaxBytes": c.MaxBytes, "UndoBytes": c.UndoBytes,
		"ProcedureCalls": c.ProcedureCalls, "KeepBytes": c.KeepBytes, "GuardBytes": c.GuardBytes,
	} {
		if value < 0 {
			return fmt.Errorf("luatx: Config.%s is %d: use 0 for the default, or more", name, value)
		}
	}
	if c.MaxCommands > maxCommands {
		return fmt.Errorf("luatx: Config.MaxCommands is %d: use at most %d", c.MaxCommands, maxCommands)
	}
	if err := validateProcedures(c.Procedures); err != nil {
		return err
	}
	if err := c.Durability.validate(); err != nil {
		return err
	}
	return c.Keyspace.validate()
}
