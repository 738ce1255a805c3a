package luatx

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/luatx/luatx/message"
)

// Config configures a Transactor. Namespace is required; every other field has a usable zero value.
type Config struct {
	// Namespace is the prefix of every key that luatx stores. Two services on one Redis with different namespaces do not see each
	// other's ids and events. Letters, digits, dots, dashes and underscores, at most 64. Required.
	Namespace string

	// Keyspace maps aggregates to tags. Defaults to OwnTags().
	Keyspace Keyspace

	// Aggregate returns the id of the aggregate that a message concerns. It runs before the handler and must return the same id
	// for a redelivery, which must reach the same slot. Defaults to the message's subject. If the id is empty, the message has
	// the tag of the stream that it was read from.
	Aggregate func(*message.Message) (string, error)

	// Retention is the minimum time for which an id is remembered. Commits forget the id after at most twice that time, but in an
	// idle shard the id stays longer. Ids that were committed under a longer retention keep that one. Defaults to 24 hours; at
	// least ten times CommitTimeout.
	Retention time.Duration

	// CommitTimeout bounds a commit including its retries, unless the caller's deadline is earlier. A copy of the commit that the
	// network delivers later has no effect. Defaults to 30 seconds; at most 5 minutes.
	CommitTimeout time.Duration

	// OutboxCapacity is the maximum number of pending and waiting events in one shard. Parked events count separately. Defaults
	// to 100,000.
	OutboxCapacity int

	// OutboxBytes is the maximum size of the bodies of pending and waiting events in one shard, in bytes. Defaults to 64 MiB.
	OutboxBytes int

	// ParkedCapacity is the number of parked events in one shard at which the shard accepts no more events. Its pending and
	// waiting events may still be parked. Defaults to 100,000.
	ParkedCapacity int

	// ParkedBytes is the size of the bodies of parked events in one shard, in bytes, at which the shard accepts no more events.
	// Its pending and waiting events may still be parked. Defaults to 256 MiB.
	ParkedBytes int

	// LaneCapacity is the maximum number of events with one ordering key, including a parked event at the head of the lane. It
	// keeps a blocked lane from filling the shard. Defaults to 10,000.
	LaneCapacity int

	// MaxCommands is the maximum number of commands, events and guarded reads in one transaction, at most 65,535. Defaults to
	// 10,000.
	MaxCommands int

	// MaxBytes is the maximum size of the commands, events and guarded reads of one transaction, in bytes. Defaults to 8 MiB.
	MaxBytes int

	// UndoBytes is the size, in bytes, of the largest key that the script copies to undo a command without a cheaper inverse
	// (DEL, XADD, LPOP …). The last command of a transaction needs no copy. Defaults to 1 MiB.
	UndoBytes int

	// GuardBytes is the maximum size of the replies to all guarded reads of one transaction, in bytes; each element of a reply
	// counts 64 bytes more. The server computes a digest of the replies in the read and again in the commit, and both again in
	// each conflict retry. Defaults to 1 MiB, which is at most 16,000 elements.
	GuardBytes int

	// ConflictRetries is how often a handler, or the function of a call, runs again because a value that it read changed before
	// the commit. Defaults to 32; a negative number disables retries.
	ConflictRetries int

	// Procedures are the procedures that Tx.Call can call. Their source is part of the commit script.
	Procedures []Procedure

	// ProcedureCalls is the maximum number of calls of redis.call and redis.pcall in one run of a procedure. The limit exists
	// because a script that has written cannot be stopped from outside. Defaults to 1,000.
	ProcedureCalls int

	// KeepBytes is the maximum size of the replies that a transaction with KeepReplies stores, in bytes. Larger replies are not
	// stored. Defaults to 64 KiB.
	KeepBytes int

	// NoCompile sends every transaction through the general script. By default, a transaction whose plan was sent 100 times uses
	// a script compiled for that plan, at half the CPU time on the server and with the same outcome. The plan is the sequence of
	// commands, the number of their arguments, and the events.
	NoCompile bool

	// Durability makes a commit wait until replicas or disks have it. Defaults to no wait.
	Durability Durability

	// NoWakeUps disables wake-ups. By default, after a commit with due events that no relay of this process publishes, the relays
	// of other processes are notified by PUBLISH (SPUBLISH since Redis 7.0), outside of the commit. Without wake-ups, relays find
	// the events in their next sweep.
	NoWakeUps bool

	// NoRegistration keeps the relays, consumers and workers of this Transactor out of the list of running processes, which
	// admin.Operator.Processes returns. By default, each of them registers itself and sends a heartbeat every 10 seconds.
	NoRegistration bool

	// NoHistory keeps the relays and workers of this Transactor from writing to the history of the namespace, which
	// admin.Operator.History returns. NoRegistration does the same. By default, each relay adds what it has published to the
	// history every 10 seconds, and one process of all measures the outbox.
	NoHistory bool

	// StrictEviction makes Check fail if the server may evict keys. By default, Check logs a warning.
	StrictEviction bool

	// Observer is notified of the outcome of each commit. The zero Observer costs nothing.
	Observer Observer

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

const (
	maxCommitTimeout = 5 * time.Minute
	maxCommands      = 1<<16 - 1 // the maximum that a plan can count
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
		return errors.New("luatx: Config.Namespace is empty; name the service, as in \"orders\"")
	}
	if !namespacePattern.MatchString(c.Namespace) {
		return fmt.Errorf("luatx: Config.Namespace %.80q; use at most 64 letters, digits, dots, dashes and underscores", c.Namespace)
	}
	if c.CommitTimeout < 0 || c.CommitTimeout > maxCommitTimeout {
		return fmt.Errorf("luatx: Config.CommitTimeout is %v; use more than 0 and at most %v", c.CommitTimeout, maxCommitTimeout)
	}
	if c.Retention < 10*c.CommitTimeout {
		return fmt.Errorf("luatx: Config.Retention is %v; use at least ten times CommitTimeout, %v", c.Retention, 10*c.CommitTimeout)
	}
	for name, value := range map[string]int{
		"OutboxCapacity": c.OutboxCapacity, "OutboxBytes": c.OutboxBytes, "ParkedCapacity": c.ParkedCapacity, "ParkedBytes": c.ParkedBytes,
		"LaneCapacity": c.LaneCapacity, "MaxCommands": c.MaxCommands, "MaxBytes": c.MaxBytes, "UndoBytes": c.UndoBytes,
		"ProcedureCalls": c.ProcedureCalls, "KeepBytes": c.KeepBytes, "GuardBytes": c.GuardBytes,
	} {
		if value < 0 {
			return fmt.Errorf("luatx: Config.%s is %d; use 0 for the default, or more", name, value)
		}
	}
	if c.MaxCommands > maxCommands {
		return fmt.Errorf("luatx: Config.MaxCommands is %d; use at most %d", c.MaxCommands, maxCommands)
	}
	if err := validateProcedures(c.Procedures); err != nil {
		return err
	}
	if err := c.Durability.validate(); err != nil {
		return err
	}
	return c.Keyspace.validate()
}
