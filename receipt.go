package luatx

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/slot"
)

const (
	// slack is added to the deadline of a commit. It allows for half a round trip and for clock differences between masters.
	slack = time.Second
	// resolveTimeout bounds a request for the outcome of a commit whose reply was lost.
	resolveTimeout = 5 * time.Second
)

// UnknownError is ErrOutcomeUnknown with the receipt of the commit. Resolve returns the outcome for a receipt.
type UnknownError struct {
	// Receipt identifies the commit. It is text, and may be stored.
	Receipt Receipt
	// Err is the reason why the outcome is unknown.
	Err error
}

func (e *UnknownError) Error() string { return fmt.Sprintf("%v: %v", ErrOutcomeUnknown, e.Err) }

// Unwrap returns ErrOutcomeUnknown and the cause, so that errors.Is finds both.
func (e *UnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }

// Receipt identifies a commit whose outcome is unknown.
type Receipt string

const receiptVersion = "3"

func newReceipt(tx *Tx) Receipt {
	c := &tx.commit
	// The commit was sent no earlier than CommitTimeout before its deadline, so the inbox keeps its id at least until then.
	known := c.NotAfter.Add(-slack - tx.t.cfg.CommitTimeout + tx.t.cfg.Retention)
	key, offset, owner := c.Digest, "", ""
	if p := c.Position; p != nil {
		key, offset, owner = p.Field, p.Offset, p.Owner
	}
	fields := strings.Join([]string{
		receiptVersion, strconv.Itoa(c.Shard.Slot), hex.EncodeToString([]byte(key)), offset, hex.EncodeToString([]byte(owner)),
		hex.EncodeToString([]byte(c.Token)), strconv.FormatInt(c.NotAfter.Add(slack).UnixMilli(), 10),
		strconv.FormatInt(known.UnixMilli(), 10), tx.t.cfg.Namespace,
	}, "-")
	return Receipt(fmt.Sprintf("%s-%08x", fields, crc32.ChecksumIEEE([]byte(fields))))
}

// receiptParts holds the fields of a receipt.
type receiptParts struct {
	slot      int
	digest    string           // of the id; empty: there is a position
	position  *commit.Position // nil: there is an id
	token     string           // of the commit
	until     time.Time        // no copy of the commit takes effect later
	known     time.Time        // the inbox keeps the commit's id at least until then
	namespace string
}

func (r Receipt) parse() (receiptParts, error) {
	last := max(0, strings.LastIndexByte(string(r), '-'))
	fields, sum := string(r[:last]), strings.TrimPrefix(string(r[last:]), "-")
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(fields))) != sum {
		return receiptParts{}, fmt.Errorf("%w: it is truncated or altered", ErrReceiptInvalid)
	}
	parts := strings.SplitN(fields, "-", 9)
	if len(parts) != 9 || parts[0] != receiptVersion {
		return receiptParts{}, fmt.Errorf("%w: it is of another version", ErrReceiptInvalid)
	}
	n, err1 := strconv.Atoi(parts[1])
	key, err2 := hex.DecodeString(parts[2])
	owner, err3 := hex.DecodeString(parts[4])
	token, err4 := hex.DecodeString(parts[5])
	until, err5 := strconv.ParseInt(parts[6], 10, 64)
	known, err6 := strconv.ParseInt(parts[7], 10, 64)
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil || n < 0 || n >= slot.Count || len(token) != 10 {
		return receiptParts{}, ErrReceiptInvalid
	}
	of := receiptParts{slot: n, token: string(token), until: time.UnixMilli(until), known: time.UnixMilli(known), namespace: parts[8]}
	switch offset := parts[3]; {
	case offset != "" && bytes.Count(owner, []byte(" ")) >= 2:
		of.position = &commit.Position{Field: string(key), Offset: offset, Owner: string(owner)}
	case offset == "" && len(key) == 16:
		of.digest = string(key)
	default:
		return receiptParts{}, ErrReceiptInvalid
	}
	return of, nil
}

// Resolve returns the outcome of a commit whose outcome was unknown, within the retention. Replayed means that the commit took
// effect. Duplicate means that another call or delivery with the same id did. ErrExpired means that the commit did not take
// effect and never will, because Resolve prevents a late copy from taking effect.
//
// A message with a position (see inbox.Position) is also a Duplicate if a later message of its partition was committed since.
//
// After the retention, or after that of t if it is shorter, Resolve returns ErrReceiptExpired unless it still finds the commit. It
// returns ErrReceiptForeign for a receipt of another namespace, and ErrReceiptInvalid for a text that is not a complete receipt. It
// returns a *RollbackError if the id is marked as broken, and ErrKeyspace if the shard belongs to another keyspace. Any other error
// means that the server did not reply before ctx ended or Config.CommitTimeout passed; call Resolve again.
func (t *Transactor) Resolve(ctx context.Context, receipt Receipt) (Result, error) {
	r, err := receipt.parse()
	if err != nil {
		return Result{}, fmt.Errorf("luatx: resolve: %w", err)
	}
	if r.namespace != t.cfg.Namespace {
		return Result{}, fmt.Errorf("luatx: resolve: %w: it is of namespace %q, this Transactor of %q", ErrReceiptForeign, r.namespace, t.cfg.Namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	home := t.shards.Shard(r.slot)
	state, text, now, err := t.commits.Resolve(ctx, home, r.digest, r.position, r.token, r.until)
	if err != nil {
		return Result{}, fmt.Errorf("luatx: resolve: %w", err)
	}
	switch state {
	case commit.Tombstoned, commit.Absent, commit.Duplicate:
		// The inbox may forget the id after the retention of t, even if that of the commit was longer.
		shorter := r.until.Add(-2*slack - t.cfg.CommitTimeout + t.cfg.Retention)
		if now.After(r.known) || now.After(shorter) {
			return Result{}, fmt.Errorf("luatx: resolve: %w", ErrReceiptExpired)
		}
	}
	if err := outcomeError(&commit.Outcome{State: state, Text: text}, &Tx{t: t, home: home}); err != nil {
		return Result{}, err
	}
	return Result{Outcome: outcomes[state]}, nil
}

// Seen reports whether the claimed id or position has been committed already. It returns false if no id is claimed. Only the
// commit decides. Seen spares a handler with effects outside of Redis a run that would be a duplicate. It returns a *RollbackError if
// the id is marked as broken, ErrKeyspace if the shard belongs to another keyspace, and other errors if the server does not reply in time.
func (tx *Tx) Seen(ctx context.Context) (bool, error) {
	tx.mu.Lock()
	claimed, digest := tx.claimed, tx.identity().Digest()
	tx.mu.Unlock()
	if !claimed {
		return false, nil
	}
	ctx, cancel := tx.lookup(ctx)
	defer cancel()
	state, text, _, err := tx.t.commits.Resolve(ctx, tx.home, digest, tx.position(), "", time.Time{})
	switch {
	case err != nil:
		return false, err
	case state == commit.Broken:
		return false, &RollbackError{text}
	case state == commit.Identity:
		return false, outcomeError(&commit.Outcome{State: state, Text: text}, tx)
	}
	return state == commit.Replayed || state == commit.Duplicate, nil
}

// marked is Seen for a handler that has failed, perhaps because its id was committed before. It logs errors and returns false.
func (tx *Tx) marked(ctx context.Context) bool {
	seen, err := tx.Seen(ctx)
	if err != nil {
		tx.t.cfg.Logger.Warn("luatx: the handler failed and its id could not be looked up", "error", err)
	}
	return seen
}

// lookup returns the context for a request about the transaction's id. A delivery must be settled, so its request outlives ctx;
// the request of a call ends with ctx.
func (tx *Tx) lookup(ctx context.Context) (context.Context, context.CancelFunc) {
	if tx.delivery.msg != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, resolveTimeout)
}
