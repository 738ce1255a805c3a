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
)

// Claimed is an event under a lease.
type Claimed struct {
	ID      string
	Attempt int
	Route   string // its destination; empty: as its body says
	Body    []byte
	Given   bool // see Event
}

// Claim is what a claim found.
type Claim struct {
	Lease   string
	Events  []Claimed
	Parked  int // events that had used up their attempts
	Orphans int // index members without a body, removed
	// Replicated: everything that the shard had taken is as far as Claiming.Wait asks. Not meant where there are no Events.
	Replicated bool
	// Next is how long after the claim the next event is due; negative: none waits.
	Next time.Duration
}

// Claiming is how due events are taken.
type Claiming struct {
	Limit     int
	Lease     time.Duration
	Attempts  int
	Continues bool // a lane, without its parked events
	Wait      eval.Durability
}

// Claim takes due events of a shard under a lease.
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
	return claim, s.fetchBodies(ctx, shard, claim.Events)
}

// fetchBodies reads large bodies, which the scripts only refer to. A body that is lost is empty.
func (s *Scripts) fetchBodies(ctx context.Context, shard Shard, events []Claimed) error {
	pipe := s.client.Pipeline()
	bodies := make(map[*Claimed]*redis.StringCmd)
	for i := range events {
		if e := &events[i]; len(e.Body) > 0 && e.Body[0] == lua.StagedMark {
			bodies[e] = pipe.Get(ctx, shard.BodyKey(string(e.Body)))
		}
	}
	if len(bodies) == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for e, body := range bodies {
		e.Body, _ = body.Bytes()
	}
	return nil
}

// claimedIn reads events as internal/lua/claim.lua and internal/lua/settle.lua hand them out.
func claimedIn(rows []any) []Claimed {
	events := make([]Claimed, 0, len(rows)/4)
	for ; len(rows) > 3; rows = rows[4:] {
		e := Claimed{ID: eval.Word(rows[0]), Attempt: eval.Number(rows[1]), Route: eval.Word(rows[2])}
		e.Body, e.Given = unstored(eval.Word(rows[3]))
		events = append(events, e)
	}
	return events
}

// Settlement is the fate of one event after a publish.
type Settlement struct {
	ID    string
	What  string // sent, failed, parked, back, hold: back until Unhold
	Lease string // empty: the committer's own
	Body  []byte // of a sent one, as it was committed; empty: the script looks at it, which takes it longer
	Given bool   // of a sent one, see Event
	// Number is the jitter in [0, 1) of a failed one, and the pause in ms of one that is given back or held.
	Number float64
	Class  string // of the error; may be empty for a failed one
	Error  string

	Destination string // of the event, for the history; the shard does not need it
}

// Settling is how events are settled.
type Settling struct {
	Attempts  int
	Base, Cap time.Duration // of the pause after a failure
	Retention time.Duration // of sent ids that were given; negative: none
	KeepBody  bool          // of sent events, and all their ids
	Continues bool          // a lane, without its parked events
	Lease     time.Duration // for events that become the heads of their lanes; 0: they are everybody's
}

// Settled is what became of a batch.
type Settled struct {
	Done     []string // of each: its What, parked where a failed one used up its attempts, stale where nothing was done
	Heads    int      // events that have become the heads of their lanes
	Lease    string   // of the promoted ones: those of them that are leased to the caller
	Promoted []Claimed
}

// maxError is how much of an error is kept with an event, in bytes.
const maxError = 1024

// settleFields is how many arguments of internal/lua/settle.lua an event has that was not sent.
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
	if err := s.fetchBodies(ctx, shard, settled.Promoted); err != nil {
		s.runner.Log().Warn("luatx: bodies not read", "slot", shard.Slot, "error", err)
		settled.Promoted = nil
	}
	letters := eval.Word(rows[2])
	for i, at := range order {
		settled.Done[at] = fates[letters[i]]
	}
	return settled, nil
}

// fates are the letters of internal/lua/settle.lua.
var fates = map[byte]string{'s': "sent", 'f': "failed", 'p': "parked", 'b': "back", '-': "stale"}

// args are the arguments of internal/lua/settle.lua: those that were sent come first. The order says where each stood.
func (how Settling) args(batch []Settlement) (args []any, order []int) {
	retention := how.Retention.Milliseconds()
	if how.Retention < 0 { // however little
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

// mark is what the shard keeps of an event that was sent. If the body is not known, the script makes it itself.
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

// Schedule moves a scheduled event that no relay has taken to another time, or cancels it where that is zero, and
// reports whether it did.
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

// Held is an event that somebody is about to publish, and his lease; empty: the committer's own.
type Held struct{ ID, Lease string }

// Extended is what became of events whose leases were to be extended.
type Extended struct {
	Held  []bool // of each
	Lease string // the new one, of held events that had one
	// Replicated: everything that the shard had taken is as far as was asked.
	Replicated bool
}

// Extend extends the leases of events, and waits behind that as far as d asks.
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
