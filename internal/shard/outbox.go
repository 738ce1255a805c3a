package shard

import (
	"context"
	"crypto/sha1" //nolint:gosec // see Settlement.mark
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/piped"
)

// Claimed is an event with a lease.
type Claimed struct {
	ID      string
	Attempt int
	Route   string // the destination that replaces the one in the body; empty: the one in the body
	Body    []byte // empty if a large body is lost or unread
	Given   bool   // see Event.Given
	Unread  error  // why a large body could not be read; the caller gives the event back
}

// Claim is the result of a claim.
type Claim struct {
	Lease   string
	Events  []Claimed
	Parked  int // number of events that were parked because they had used up their attempts
	Orphans int // number of index members that were removed because they had no body
	// Replicated reports whether all writes of the shard have reached what Claiming.Wait requires. It has no meaning
	// without Events.
	Replicated bool
	// Next is the time from the claim until the next event is due. It is negative if no event waits.
	Next time.Duration
}

// The bounds of a claim. The score of a lease that ends much later than MaxLease would be that of a free event.
const (
	MaxLimit = 1000
	MinLease = 100 * time.Millisecond
	MaxLease = 24 * time.Hour
)

// Claiming contains the options of a claim.
type Claiming struct {
	Limit     int
	Lease     time.Duration
	Attempts  int
	Continues bool // lanes continue without their parked events
	Wait      eval.Durability
}

// Claim leases due events of a shard.
func (s *Scripts) Claim(ctx context.Context, shard Shard, how Claiming) (Claim, error) {
	args := []any{how.Limit, how.Lease.Milliseconds(), how.Attempts, digit(how.Continues)}
	reply, replicated, err := s.runner.EvalDurably(ctx, how.Wait, s.claim, shard.keysOf("claim"), args)
	if err != nil {
		return Claim{}, err
	}
	now, rows, err := ownTimed(shard, reply)
	if err != nil {
		return Claim{}, err
	}
	if len(rows) < 4 || len(rows)%4 != 0 {
		return Claim{}, eval.Malformed("claim", reply)
	}
	claim := Claim{Next: -1, Replicated: replicated}
	if due := eval.Word(rows[0]); due != "" {
		claim.Next = max(0, eval.Moment(due).Sub(now))
	}
	claim.Lease, claim.Parked, claim.Orphans = eval.Word(rows[1]), eval.Number(rows[2]), eval.Number(rows[3])
	claim.Events = claimedIn(rows[4:])
	s.fetchBodies(ctx, shard, claim.Events)
	return claim, nil
}

// fetchBodies reads large bodies, because the scripts return only references to them. If a body cannot be read, its
// event gets the reason in Unread.
func (s *Scripts) fetchBodies(ctx context.Context, shard Shard, events []Claimed) {
	pipe := s.client.Pipeline()
	bodies := make(map[*Claimed]*redis.StringCmd)
	for i := range events {
		if e := &events[i]; len(e.Body) > 0 && e.Body[0] == lua.StagedMark {
			bodies[e] = pipe.Get(ctx, shard.BodyKey(string(e.Body)))
		}
	}
	if len(bodies) == 0 {
		return
	}
	_, _ = piped.Exec(ctx, pipe) // each command contains its error
	for e, body := range bodies {
		var err error
		if e.Body, err = body.Bytes(); !errors.Is(err, redis.Nil) {
			e.Unread = err
		}
	}
}

// claimedIn parses events in the format that internal/lua/claim.lua and internal/lua/settle.lua return.
func claimedIn(rows []any) []Claimed {
	events := make([]Claimed, 0, len(rows)/4)
	for ; len(rows) > 3; rows = rows[4:] {
		e := Claimed{ID: eval.Word(rows[0]), Attempt: eval.Number(rows[1]), Route: eval.Word(rows[2])}
		e.Body, e.Given = unstored(eval.Word(rows[3]))
		events = append(events, e)
	}
	return events
}

// Settlement is the outcome of one event after a publish.
type Settlement struct {
	ID    string
	What  string // sent, failed, parked, back or hold (back until Unhold)
	Lease string // empty: the event has the committer's own lease
	Body  []byte // the body of a sent event, as it was committed; empty: the script reads it, which takes longer
	Given bool   // of a sent event; see Event.Given
	// Number is the jitter in [0, 1) of a failed event, or the pause in ms of an event that is returned or held.
	Number float64
	Class  string // the class of the error; may be empty for a failed event
	Error  string

	Destination string // the destination of the event, for the history; the shard does not need it
}

// Settling contains the options of a settlement.
type Settling struct {
	Attempts  int
	Base, Cap time.Duration // bounds of the pause after a failure
	Retention time.Duration // how long the shard keeps given ids of sent events; negative: it keeps none
	KeepBody  bool          // keeps the bodies and all ids of sent events
	Continues bool          // lanes continue without their parked events
	Lease     time.Duration // lease of events that become the heads of their lanes; 0: any relay may claim them
}

// Settled is the result of settling a batch.
type Settled struct {
	Done     []string // for each event: its What; parked if a failed event has used up its attempts; stale if nothing was changed
	Heads    int      // number of events that have become the heads of their lanes
	Lease    string   // lease of the Promoted events: the new heads that are leased to the caller
	Promoted []Claimed
}

// maxError is the maximum size, in bytes, of an error that is kept with an event.
const maxError = 1024

// settleFields is the number of arguments that internal/lua/settle.lua expects for an event that was not sent.
const settleFields = 6

// Settle settles a batch of events.
func (s *Scripts) Settle(ctx context.Context, shard Shard, how Settling, batch []Settlement) (Settled, error) {
	if len(batch) == 0 {
		return Settled{}, nil
	}
	args, order := how.args(batch)
	reply, err := s.runner.EvalShared(ctx, s.settle, shard.keysOf(s.settle.Name), args)
	_, rows, err := rowsOf(s.settle, shard, 0, reply, err)
	if err == nil && (len(rows) < 3 || (len(rows)-3)%4 != 0 || len(eval.Word(rows[2])) != len(batch)) {
		err = eval.Malformed("settle", rows)
	}
	if err != nil {
		return Settled{}, err
	}
	settled := Settled{
		Lease: eval.Word(rows[0]), Heads: eval.Number(rows[1]), Done: make([]string, len(batch)), Promoted: claimedIn(rows[3:]),
	}
	s.fetchBodies(ctx, shard, settled.Promoted)
	letters := eval.Word(rows[2])
	for i, at := range order {
		settled.Done[at] = fates[letters[i]]
	}
	return settled, nil
}

// fates maps the letters that internal/lua/settle.lua returns.
var fates = map[byte]string{'s': "sent", 'f': "failed", 'p': "parked", 'b': "back", '-': "stale"}

// args returns the arguments of internal/lua/settle.lua, with the sent events first. Order contains the index in the
// batch of each event.
func (how Settling) args(batch []Settlement) (args []any, order []int) {
	retention := how.Retention.Milliseconds()
	if how.Retention < 0 { // however small, because Milliseconds rounds it to 0
		retention = -1
	}
	args = make([]any, 0, 10+settleFields*len(batch))
	args = append(args, how.Attempts, how.Base.Milliseconds(), how.Cap.Milliseconds(), retention,
		digit(how.KeepBody), digit(how.Continues), how.Lease.Milliseconds(), 0, 0, "")
	order = make([]int, 0, len(batch))
	size, known := 0, true
	for i := range batch {
		if b := &batch[i]; b.What == "sent" {
			size, known = size+len(b.Body)+digit(b.Given), known && len(b.Body) > 0
		}
	}
	remembered := func(b *Settlement) bool { return known && b.Given && how.Retention >= 0 }
	for i := range batch {
		if b := &batch[i]; b.What == "sent" && remembered(b) {
			args = append(args, &b.ID, b.mark())
			order = append(order, i)
		}
	}
	args[7] = len(order)
	for i := range batch {
		if b := &batch[i]; b.What == "sent" && !remembered(b) {
			args = append(args, &b.ID)
			order = append(order, i)
		}
	}
	if args[8] = len(order) - args[7].(int); known {
		args[9] = size
	}
	for i := range batch {
		if b := &batch[i]; b.What != "sent" {
			args = append(args, &b.ID, b.What, b.Lease, b.Number, b.Class, b.Error[:min(len(b.Error), maxError)])
			order = append(order, i)
		}
	}
	return args, order
}

// mark returns the value that the shard keeps for a sent event. If the body is not known, the script computes the
// value.
func (s *Settlement) mark() string {
	sum := sha1.Sum(s.Body) //nolint:gosec // it tells bodies apart, and scripts can compute no other
	var text [1 + 2*sha1.Size]byte
	text[0] = '='
	hex.Encode(text[1:], sum[:])
	return string(text[:])
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Schedule changes the time of a scheduled event that no relay has claimed, or cancels the event if the time is zero.
// It reports whether it did so.
func (s *Scripts) Schedule(ctx context.Context, shard Shard, id string, at time.Time) (bool, error) {
	text := ""
	if !at.IsZero() {
		text = eval.Millis(at)
	}
	_, rows, err := s.run(ctx, s.scheduled, shard, 0, id, text)
	if err != nil {
		return false, err
	}
	return eval.Number(rows[0]) == 1, nil
}

// Held is an event that a relay is about to publish, and its lease. An empty Lease is the committer's own.
type Held struct{ ID, Lease string }

// Extended is the result of extending leases.
type Extended struct {
	Held  []bool // for each event, whether it is still leased
	Lease string // the new lease of the held events that had one
	// Replicated reports whether all writes of the shard have reached what Durability requires.
	Replicated bool
}

// Extend extends the leases of events, and then waits as d requires.
func (s *Scripts) Extend(ctx context.Context, shard Shard, lease time.Duration, events []Held, d eval.Durability) (Extended, error) {
	args := make([]any, 0, 1+2*len(events))
	args = append(args, lease.Milliseconds())
	for _, e := range events {
		args = append(args, e.ID, e.Lease)
	}
	reply, replicated, err := s.runner.EvalDurably(ctx, d, s.extend, shard.keysOf("extend"), args)
	if err != nil {
		return Extended{}, err
	}
	_, rows, err := eval.Timed(reply)
	if err != nil || len(rows) != 1+len(events) {
		return Extended{}, eval.Malformed("extend", reply)
	}
	extended := Extended{Held: make([]bool, len(events)), Lease: eval.Word(rows[0]), Replicated: replicated}
	for i, row := range rows[1:] {
		extended.Held[i] = eval.Number(row) == 1
	}
	return extended, nil
}
