package message

import "fmt"

// EarlyError is returned if the message in front of a message of the same partition is not committed yet, or if a failover has lost its
// commit. Nothing was written. Deliver the message again after the one in front of it.
type EarlyError struct {
	// After is the offset that must be committed first.
	After string
	// Committed is the offset that is committed, or empty if none is.
	Committed string
}

// Error names both offsets.
func (e *EarlyError) Error() string {
	return fmt.Sprintf("luatx: commit: the message at %s in front of this one is not committed, only %q is; deliver it first", e.After, e.Committed)
}

// Untried returns true, because the message itself did not fail.
func (e *EarlyError) Untried() bool { return true }

// EpochError is returned if the source has another epoch than the position that the shard has stored, because the source counts its
// messages from the beginning again. Nothing was written.
type EpochError struct {
	// Source and Partition are those of the message.
	Source, Partition string
	// Stored is the epoch of the position, and Found that of the message.
	Stored, Found string
}

// Error names the epochs and the remedy.
func (e *EpochError) Error() string {
	return fmt.Sprintf("luatx: commit: source %q, partition %q has epoch %q, and its position has epoch %q; if the source was created anew, rewind the position to the beginning (luatx inbox position, or admin.Operator.Rewind), or else connect to the former source",
		e.Source, e.Partition, e.Found, e.Stored)
}

// Untried returns true, because the message itself did not fail.
func (e *EpochError) Untried() bool { return true }
