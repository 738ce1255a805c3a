package shard

import (
	"context"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Act is what the audit stream says of a call of an operator.
type Act struct {
	Operation string // its id
	Call      int    // within the operation: the same call, sent again, does nothing new
	Who, Why  string
}

// The replies of internal/lua/_audit.lua for an event.
const (
	ActDone    = 'd'
	ActUnknown = 'u'
	ActState   = 'w'
	ActNewer   = 'n'
	ActErased  = 'e'
	ActNoBody  = 'b'
	ActLeased  = 'l'
	ActFull    = 'f'
	ActKnown   = 'k'
	ActOther   = 'o'
)

// Rearm re-arms parked events. It skips events that were parked after the cut-off, unless that is zero, and it
// changes the destination, unless that is empty. It returns a letter for each event.
func (s *Scripts) Rearm(ctx context.Context, shard Shard, act Act, cutoff time.Time, destination string, ids []string) (string, error) {
	until := ""
	if !cutoff.IsZero() {
		until = eval.Millis(cutoff)
	}
	return s.act(ctx, s.rearm, shard, act, []any{until, destination}, ids)
}

// Discard removes parked events and returns a letter for each.
func (s *Scripts) Discard(ctx context.Context, shard Shard, act Act, ids []string) (string, error) {
	return s.act(ctx, s.discard, shard, act, nil, ids)
}

// Erase erases the bodies of events and returns a letter for each.
func (s *Scripts) Erase(ctx context.Context, shard Shard, act Act, ids []string) (string, error) {
	return s.act(ctx, s.erase, shard, act, nil, ids)
}

// Change changes events that are not published yet, as internal/lua/change.lua names the act, and returns a letter for each.
func (s *Scripts) Change(ctx context.Context, shard Shard, act Act, what string, at time.Time, ids []string) (string, error) {
	text := ""
	if !at.IsZero() {
		text = eval.Millis(at)
	}
	return s.act(ctx, s.change, shard, act, []any{what, text}, ids)
}

// Replay puts events that were sent until the cut-off back into pending, and returns a letter for each.
func (s *Scripts) Replay(ctx context.Context, shard Shard, act Act, cutoff time.Time, ids []string) (string, error) {
	return s.act(ctx, s.replay, shard, act, []any{eval.Millis(cutoff)}, ids)
}

// Imported is an event that comes in as a parked one.
type Imported struct {
	ID       string
	Key      string // of its lane; empty: none
	Parked   time.Time
	Attempts int
	History  string // as the shard keeps it
	Route    string
	Body     []byte
	Digest   string // of a body that was erased, in hex; Body is empty then
}

// Import takes events in as parked ones and returns a letter for each.
func (s *Scripts) Import(ctx context.Context, shard Shard, act Act, events []Imported) (string, error) {
	args := make([]any, 0, 7*len(events))
	for _, e := range events {
		body := Stored(e.Body, true)
		if e.Digest != "" {
			body = []byte("!" + e.Digest)
		}
		args = append(args, e.ID, escapeKey(e.Key), eval.Millis(e.Parked), strconv.Itoa(e.Attempts), e.History, e.Route, body)
	}
	return s.act(ctx, s.imports, shard, act, args, nil)
}

// act runs such a script on ids, and expects a letter for each.
func (s *Scripts) act(ctx context.Context, script *eval.Script, shard Shard, act Act, args []any, ids []string) (string, error) {
	all := append(make([]any, 0, len(args)+len(ids)), args...)
	for _, id := range ids {
		all = append(all, id)
	}
	letters, err := s.actOn(ctx, script, shard, act, all)
	if err == nil && ids != nil && len(letters) != len(ids) {
		return "", eval.Malformed(script.Name, letters)
	}
	return letters, err
}

// actOn runs a script that begins with internal/lua/_audit.lua, and returns the letters of its reply.
func (s *Scripts) actOn(ctx context.Context, script *eval.Script, shard Shard, act Act, args []any) (string, error) {
	all := append([]any{act.Operation, act.Call, act.Who, act.Why}, args...)
	_, rows, err := s.run(ctx, script, shard, 0, all...)
	if err != nil {
		return "", err
	}
	return eval.Word(rows[0]), nil
}
