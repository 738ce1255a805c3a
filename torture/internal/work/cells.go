package work

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/torture/internal/ground"
	"github.com/luatx/luatx/torture/internal/history"
)

// CellAccounts lists the accounts of a cell in the order of a peek.
var CellAccounts = []string{"x", "y", "z"}

// cellCall returns a random call on the branch's cell of this second.
func (t *teller) cellCall() *call {
	b, line := t.cell()
	switch t.rng.IntN(3) {
	case 0:
		return t.deposit(b, line)
	case 1:
		return t.cellProcedure(b, line)
	default:
		return t.cellGuarded(b, line)
	}
}

func (t *teller) cell() (ground.Branch, history.Line) {
	b := t.somewhere()
	from := t.rng.IntN(len(CellAccounts))
	to := (from + 1 + t.rng.IntN(len(CellAccounts)-1)) % len(CellAccounts)
	return b, history.Line{
		ID: t.newID("l"), Branch: b.N, Cell: t.now() / int64(ground.CellTime), From: CellAccounts[from], To: CellAccounts[to], Amount: 1 + t.rng.Int64N(5),
	}
}

func (t *teller) deposit(b ground.Branch, line history.Line) *call {
	line.Op, line.Amount = history.Deposit, 3*line.Amount
	var held *redis.IntCmd
	return &call{line: line, branch: b, record: func(ctx context.Context, tx *luatx.Tx) error {
		p := tx.Pipeline()
		held = p.HIncrBy(ctx, b.Cell(line.Cell), line.To, line.Amount)
		p.HSet(ctx, b.Done(line.Cell), line.ID, 1)
		return nil
	}, answer: func(history.Outcome) string { return number(held) }}
}

func (t *teller) cellGuarded(b ground.Branch, line history.Line) *call {
	line.Op = history.CellMove
	var added *redis.IntCmd
	var held int64
	return &call{line: line, branch: b, record: func(ctx context.Context, tx *luatx.Tx) error {
		added = nil
		var err error
		if held, err = orZero(tx.Read().HGet(ctx, b.Cell(line.Cell), line.From)); err != nil || held < line.Amount {
			return cmp.Or(err, errShort)
		}
		p := tx.Pipeline()
		p.HSet(ctx, b.Cell(line.Cell), line.From, held-line.Amount)
		added = p.HIncrBy(ctx, b.Cell(line.Cell), line.To, line.Amount)
		p.HSet(ctx, b.Done(line.Cell), line.ID, 1)
		return nil
	}, answer: shortOr(&held, &added)}
}

func (t *teller) cellProcedure(b ground.Branch, line history.Line) *call {
	line.Op = history.CellCall
	var left *redis.Cmd
	return &call{line: line, branch: b, record: func(_ context.Context, tx *luatx.Tx) error {
		left = tx.Call("cell", []string{b.Cell(line.Cell), b.Done(line.Cell)}, line.ID, line.From, line.To, line.Amount)
		return nil
	}, answer: func(history.Outcome) string { return text(left) }}
}

// peek reads a cell outside of transactions, as any client does.
func (t *teller) peek(ctx context.Context) {
	b, line := t.cell()
	line.Kind, line.Op, line.Start = history.Told, history.Peek, t.now()
	held, err := t.client.HMGet(ctx, b.Cell(line.Cell), CellAccounts...).Result()
	line.End, line.Outcome = t.now(), history.Committed
	if err != nil {
		return // nothing was read
	}
	for i, v := range held {
		if v == nil {
			held[i] = "0"
		}
	}
	line.Value = fmt.Sprintf("%v,%v,%v", held...)
	t.note(line)
}
