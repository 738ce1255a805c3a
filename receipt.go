package luatx

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/script"
	"github.com/luatx/luatx/internal/slot"
)

// UnknownError is ErrOutcomeUnknown with the receipt of the commit, by which Resolve tells what became of it.
type UnknownError struct {
	// Receipt names the commit. It is text, and may be stored.
	Receipt Receipt
	// Err is why there was no answer.
	Err error
}

func (e *UnknownError) Error() string { return fmt.Sprintf("%v: %v", ErrOutcomeUnknown, e.Err) }

// Unwrap makes errors.Is find ErrOutcomeUnknown and the cause.
func (e *UnknownError) Unwrap() []error { return []error{ErrOutcomeUnknown, e.Err} }

// Receipt names a commit whose outcome is unknown.
type Receipt string

const receiptVersion = "1"

var errReceipt = errors.New("luatx: not a receipt: use the one of an UnknownError as it is")

func newReceipt(tx *Tx, prepared *script.Tx) Receipt {
	return Receipt(strings.Join([]string{
		receiptVersion, strconv.Itoa(tx.shard.Slot), hex.EncodeToString([]byte(prepared.Digest)),
		hex.EncodeToString([]byte(prepared.Token)), strconv.FormatInt(prepared.NotAfter.Add(slack).UnixMilli(), 10),
	}, "-"))
}

// parse returns the shard's slot, the digest and the token of the commit, and until when a copy of it may arrive.
func (r Receipt) parse() (shard int, digest, token string, until time.Time, err error) {
	parts := strings.Split(string(r), "-")
	if len(parts) != 5 || parts[0] != receiptVersion {
		return 0, "", "", time.Time{}, errReceipt
	}
	shard, err1 := strconv.Atoi(parts[1])
	rawDigest, err2 := hex.DecodeString(parts[2])
	rawToken, err3 := hex.DecodeString(parts[3])
	ms, err4 := strconv.ParseInt(parts[4], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil || shard < 0 || shard >= slot.Count || len(rawDigest) != 16 || len(rawToken) != 10 {
		return 0, "", "", time.Time{}, errReceipt
	}
	return shard, string(rawDigest), string(rawToken), time.UnixMilli(ms), nil
}

// Resolve tells what became of a commit whose outcome was unknown, within the retention. Replayed: it is in.
// Duplicate: another call or delivery with its id is in. ErrExpired: it is not in, and never will be, for Resolve
// has left word for a copy that may still be on its way. Any other error: there was no answer again; ask once more.
func (t *Transactor) Resolve(ctx context.Context, receipt Receipt) (Result, error) {
	n, digest, token, until, err := receipt.parse()
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CommitTimeout)
	defer cancel()
	shard := t.scripts.Shard(n)
	state, text, err := t.scripts.Resolve(ctx, shard, digest, token, until)
	if err != nil {
		return Result{}, fmt.Errorf("luatx: resolve: %w", err)
	}
	if err := outcomeError(&script.Outcome{State: state, Text: text}, &Tx{t: t, shard: shard}); err != nil {
		return Result{}, err
	}
	return Result{Outcome: outcomes[state]}, nil
}
