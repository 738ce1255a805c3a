package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// keyPauses is the key of the paused destinations. Only the first shard of a keyspace has it.
const keyPauses = "pauses" // hash: in the first shard: destination → who paused it, why, since when and until when

const (
	// HeldFor is the maximum time for which an event of a paused destination is held. After that, a relay checks the
	// event again.
	HeldFor = 10 * time.Minute
	// MaxPauses is the maximum number of destinations that can be paused at the same time.
	MaxPauses = 1000

	unholdPage = 1000
)

// Pause is the pause of a destination. It may have ended.
type Pause struct {
	Destination string
	Who, Why    string
	Since       time.Time
	Until       time.Time // zero: until an operator resumes the destination
}

// Active reports whether the pause is in effect at a time of the server's clock.
func (p Pause) Active(now time.Time) bool { return p.Until.IsZero() || p.Until.After(now) }

// Pause pauses a destination until the given time; a zero until never ends. Act is the record for the audit, and why is
// only the reason. Pause returns ActDone, ActState if the time has passed, or ActFull.
func (s *Scripts) Pause(ctx context.Context, shard Shard, act Act, destination, why string, until time.Time) (byte, error) {
	end := ""
	if !until.IsZero() {
		end = eval.Millis(until)
	}
	return s.pauseAct(ctx, s.pause, shard, act, []any{destination, end, why, MaxPauses, HeldFor.Milliseconds()})
}

// Resume ends the pause of a destination. It returns ActDone, or ActUnknown if the destination is not paused.
func (s *Scripts) Resume(ctx context.Context, shard Shard, act Act, destination string) (byte, error) {
	return s.pauseAct(ctx, s.resume, shard, act, []any{destination})
}

func (s *Scripts) pauseAct(ctx context.Context, script *eval.Script, shard Shard, act Act, args []any) (byte, error) {
	letters, err := s.actOn(ctx, script, shard, act, args)
	if err == nil && len(letters) != 1 {
		err = eval.Malformed(script.Name, letters)
	}
	if err != nil {
		return 0, err
	}
	return letters[0], nil
}

// Pauses returns the pauses, including those that have ended recently, and the server's time.
func (s *Scripts) Pauses(ctx context.Context, shard Shard) (all []Pause, now time.Time, err error) {
	now, rows, err := s.run(ctx, s.pauses, shard, 0)
	if err == nil && len(rows) != 1+2*eval.Number(rows[0]) {
		err = eval.Malformed("pauses", rows)
	}
	if err != nil {
		return nil, now, err
	}
	for rows = rows[1:]; len(rows) > 0; rows = rows[2:] {
		p, err := pauseOf(eval.Word(rows[0]), eval.Word(rows[1]))
		if err != nil {
			return nil, now, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Pause) int { return strings.Compare(a.Destination, b.Destination) })
	return all, now, nil
}

// pauseOf parses a pause in the format of internal/lua/pause.lua.
func pauseOf(destination, text string) (Pause, error) {
	var row struct{ Who, Why, Since, Until string }
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		return Pause{}, fmt.Errorf("pause of %q: %w", destination, err)
	}
	p := Pause{Destination: destination, Who: row.Who, Why: row.Why, Since: eval.Moment(row.Since)}
	if row.Until != "" {
		p.Until = eval.Moment(row.Until)
	}
	return p, nil
}

// Unhold makes those events of a shard due that are held for a paused destination, and returns their number.
func (s *Scripts) Unhold(ctx context.Context, shard Shard) (held int, err error) {
	for from := ""; ; {
		_, rows, err := s.run(ctx, s.unhold, shard, 2, strconv.FormatInt(HeldFor.Milliseconds(), 10), from, unholdPage)
		if err != nil {
			return held, err
		}
		held += eval.Number(rows[0])
		if from = eval.Word(rows[1]); from == "" {
			return held, nil
		}
	}
}
