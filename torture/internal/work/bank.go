package work

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/piped"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

// scheduledShare is the share of transfers to other branches that are scheduled, by up to the given duration.
const (
	scheduledShare = 0.2
	scheduled      = 2 * time.Second
)

// bankCall returns a random call that moves money within a branch or to another one.
func (t *teller) bankCall() *call {
	b := t.somewhere()
	if t.rng.IntN(3) == 0 {
		b = t.branches[0] // the hot branch
	}
	from := t.rng.IntN(ground.Accounts)
	to := (from + 1 + t.rng.IntN(ground.Accounts-1)) % ground.Accounts
	line := history.Line{
		ID: t.newID("c"), Branch: b.N, From: ground.Account(from), To: ground.Account(to), Amount: 1 + t.rng.Int64N(ground.Opening/5),
	}
	switch t.rng.IntN(3) {
	case 0:
		return t.procedure(b, line)
	case 1:
		return t.send(b, line)
	default:
		return t.guarded(b, line)
	}
}

// guarded returns a transfer by guarded reads.
func (t *teller) guarded(b ground.Branch, line history.Line) *call {
	line.Op = history.Guarded
	var added *redis.IntCmd
	var left int64
	return &call{line: line, branch: b, record: func(ctx context.Context, tx *luatx.Tx) error {
		added = nil
		lane := line.From
		balance, n, err := t.read(ctx, tx, b, line.From, lane)
		if left = balance; err != nil || balance < line.Amount {
			return cmp.Or(err, errShort)
		}
		p := tx.Pipeline()
		p.HSet(ctx, b.Balances, line.From, balance-line.Amount)
		added = p.HIncrBy(ctx, b.Balances, line.To, line.Amount)
		return t.apply(ctx, tx, b, line.ID, ground.Effect{Kind: ground.Move, From: line.From, To: line.To, Amount: line.Amount, Lane: lane, N: n + 1}, "moved", time.Time{})
	}, answer: shortOr(&left, &added)}
}

// send returns a call that takes money from an account and emits an event for another branch.
func (t *teller) send(b ground.Branch, line history.Line) *call {
	line.Op = history.Send
	other := t.branches[(b.N+1+t.rng.IntN(len(t.branches)-1))%len(t.branches)]
	later := time.Duration(0)
	if t.rng.Float64() < scheduledShare {
		later = time.Duration(t.rng.Int64N(int64(scheduled)))
	}
	var left *redis.IntCmd
	return &call{line: line, branch: b, record: func(ctx context.Context, tx *luatx.Tx) error {
		left = nil
		balance, _, err := t.read(ctx, tx, b, line.From, "")
		if err != nil || balance < line.Amount {
			return cmp.Or(err, errShort)
		}
		p := tx.Pipeline()
		left = p.HIncrBy(ctx, b.Balances, line.From, -line.Amount)
		p.HIncrBy(ctx, b.Sums, "out", line.Amount)
		at := time.Time{}
		if later > 0 {
			at = time.Unix(0, t.now()).Add(later) // the servers have the machine's clock
		}
		return t.apply(ctx, tx, b, line.ID, ground.Effect{Kind: ground.Send, From: line.From, To: other.Name + "/" + line.To, Amount: line.Amount, Lane: ground.NoLane}, SentType, at)
	}, answer: func(history.Outcome) string { return number(left) }}
}

// procedure returns a transfer by one procedure on the server.
func (t *teller) procedure(b ground.Branch, line history.Line) *call {
	line.Op = history.Procedure
	var left *redis.Cmd
	return &call{line: line, branch: b, record: func(_ context.Context, tx *luatx.Tx) error {
		left = tx.Call("transfer", []string{b.Balances, b.Effects, b.Times, b.Lanes, b.Sums},
			line.ID, line.From, line.To, line.Amount, b.Name)
		return nil
	}, answer: func(history.Outcome) string { return text(left) }}
}

// read reads an account and the last event number of a lane in one pipeline.
func (t *teller) read(ctx context.Context, tx *luatx.Tx, b ground.Branch, account, lane string) (balance, n int64, err error) {
	pipe := tx.Read().Pipeline()
	held := pipe.HGet(ctx, b.Balances, account)
	var last *redis.StringCmd
	if lane != "" {
		last = pipe.HGet(ctx, b.Lanes, lane)
	}
	_, _ = piped.Exec(ctx, pipe) // each command holds its error
	if balance, err = held.Int64(); err != nil || last == nil {
		return balance, 0, err
	}
	n, err = orZero(last)
	return balance, n, err
}

// orZero returns the number in a field, or 0 if there is none.
func orZero(field *redis.StringCmd) (int64, error) {
	n, err := field.Int64()
	if err == redis.Nil { //nolint:errorlint // never wrapped
		err = nil
	}
	return n, err
}

// apply records the effect of a commit, counts it, and emits its event.
func (t *teller) apply(ctx context.Context, tx *luatx.Tx, b ground.Branch, id string, e ground.Effect, kind string, at time.Time) error {
	e.Event = ground.EventID(tx.EventID())
	p := tx.Pipeline()
	if e.Lane != ground.NoLane {
		p.HSet(ctx, b.Lanes, e.Lane, e.N)
	}
	p.HSet(ctx, b.Effects, id, e.String())
	p.HIncrBy(ctx, b.Times, id, 1)
	p.HIncrBy(ctx, b.Sums, "count", 1)
	event, err := eventOf(b, id, e, kind, at)
	if err != nil {
		return err
	}
	return tx.Emit(event)
}

// Payload is the data of an event.
type Payload struct {
	N       int64  `json:"n"`            // its place in its lane
	To      string `json:"to,omitempty"` // of money that is sent: the account
	Amount  int64  `json:"amount,omitempty"`
	Filling string `json:"filling,omitempty"` // of a large event, see fill
}

// attrDue is when a scheduled event may be published first, in Unix milliseconds.
const attrDue = "due"

func eventOf(b ground.Branch, id string, e ground.Effect, kind string, at time.Time) (luatx.Event, error) {
	payload := Payload{N: e.N, Filling: fill(id)}
	attrs := message.Attributes{
		message.AttrID: e.Event, message.AttrType: kind, message.AttrSource: "/bank", message.AttrSubject: b.Name,
		message.AttrCorrelationID: id,
	}
	declareFilling(attrs, payload)
	event := luatx.Event{ID: e.Event, At: at}
	if !at.IsZero() {
		attrs[attrDue] = strconv.FormatInt(at.UnixMilli(), 10)
	}
	if e.Lane != ground.NoLane {
		event.Key = e.Lane
		attrs[message.AttrPartitionKey] = e.Lane
	}
	if e.Kind == ground.Send {
		branch, account, _ := strings.Cut(e.To, "/")
		payload.To, payload.Amount = account, e.Amount
		attrs[message.AttrSubject] = branch // the subject is the receiving branch
	}
	data, err := json.Marshal(payload)
	if err != nil {
		return event, err
	}
	event.Body, err = outbox.Encode(message.New(data, attrs, nil))
	return event, err
}

// number returns the reply of a counter, or "" if there is none.
func number(cmd *redis.IntCmd) string {
	if cmd == nil || cmd.Err() != nil {
		return ""
	}
	return strconv.FormatInt(cmd.Val(), 10)
}

// shortOr returns the balance if it was too small, and otherwise the reply of a counter.
func shortOr(held *int64, counter **redis.IntCmd) func(history.Outcome) string {
	return func(outcome history.Outcome) string {
		if outcome == history.Short {
			return strconv.FormatInt(*held, 10)
		}
		return number(*counter)
	}
}

// text returns the reply of a procedure, or "" if there is none.
func text(cmd *redis.Cmd) string {
	if cmd == nil || cmd.Err() != nil {
		return ""
	}
	n, err := cmd.Int64()
	if err != nil {
		return "?" // the checker accepts no such value
	}
	return strconv.FormatInt(n, 10)
}
