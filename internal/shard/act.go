package shard

import (
	"context"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Act describes a call of an operator in the audit stream.
type Act struct {
	Operation string // the id of the operation
	Call      int    // number within the operation; a repeated call has no further effect
	Who, Why  string
}

// The letters that internal/lua/_audit.lua returns for an event.
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

// Change changes events that are not published yet, and returns a letter for each. internal/lua/change.lua lists the names of
// changes.
func (s *Scripts) Change(ctx context.Context, shard Shard, act Act, what string, at time.Time, ids []string) (string, error) {
	text := ""
	if !at.IsZero() {
		text = eval.Millis(at)
	}
	return s.act(ctx, s.change, shard, act, []any{what, text}, ids)
}

// Replay makes events that were sent no later than the cut-off pending again, and returns a letter for each.
func (s *Scripts) Replay(ctx context.Context, shard Shard, act Act, cutoff time.Time, ids []string) (string, error) {
	return s.act(ctx, s.replay, shard, act, []any{eval.Millis(cutoff)}, ids)
}

// Imported is an event to import as a parked one.
type Imported struct {
	ID       string
	Key      string // the ordering key; empty: none
	Parked   time.Time
	Attempts int
	History  string // the failures in the format of the shard
	Route    string
	Body     []byte
	Digest   string // the digest of an erased body, in hex; in that case, Body is empty
}

// Import adds events as parked ones and returns a letter for each.
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

// act runs a script of an act on ids. It returns an error unless the reply contains a letter for each.
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

// actOn runs a script that begins with internal/lua/_audit.lua, and returns the letters in its reply.
func (s *Scripts) actOn(ctx context.Context, script *eval.Script, shard Shard, act Act, args []any) (string, error) {
	all := append([]any{act.Operation, act.Call, act.Who, act.Why}, args...)
	_, rows, err := s.run(ctx, script, shard, 0, all...)
	if err != nil {
		return "", err
	}
	return eval.Word(rows[0]), nil
}
