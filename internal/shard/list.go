package shard

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Listing selects the events of a shard to list; see internal/lua/list.lua.
type Listing struct {
	Of     string // pending, due, expired, parked, blocking, sent, waiting or ids
	Limit  int    // maximum number of members to read
	After  Place
	Until  time.Time // the highest score; zero: no limit
	Only   string    // the letter of a state; empty: any state
	Bodies bool
	Class  string // of the last failure; empty: any class
	IDs    []string
}

// Place is the position in a listing at which a page begins. Its zero value is the beginning of the listing.
type Place struct{ Score, Member string }

// Listed is an event with everything that its shard stores about it.
type Listed struct {
	ID        string
	State     byte  // p, l, w, s, k
	Place     Place // the next page of a listing by state continues after this place
	At        time.Time
	Attempts  int
	Lease     string
	Key       string
	Failures  []Failure // newest first
	Route     string
	HasBody   bool
	Body      []byte
	Head      string // the head of its lane; empty: the event is the head, or is in no lane
	Behind    int    // number of events behind the head of a lane
	Scheduled bool   // the event is scheduled, and no relay has claimed it
}

// listFields is the number of elements that describe one event in a reply.
const listFields = 13

// Page is a page of a listing.
type Page struct {
	Rows []Listed
	Now  time.Time // the server's time
	Next Place     // where the next page begins, if there is More
	More bool
	Read int // number of members of the index that were read
}

// List reads one page.
func (s *Scripts) List(ctx context.Context, shard Shard, l Listing) (p Page, err error) {
	until := ""
	if !l.Until.IsZero() {
		until = eval.Millis(l.Until)
	}
	args := make([]any, 0, 8+len(l.IDs))
	args = append(args, l.Of, l.Limit, l.After.Score, l.After.Member, until, l.Only, digit(l.Bodies), l.Class)
	for _, id := range l.IDs {
		args = append(args, id)
	}
	reply, err := s.runner.Eval(ctx, s.list, shard.keysOf("list"), args)
	if err != nil {
		return p, err
	}
	now, fields, err := eval.Timed(reply)
	if err != nil || len(fields)%listFields != 3 {
		return p, eval.Malformed("list", reply)
	}
	p.Now, p.Next, p.Read = now, Place{eval.Word(fields[0]), eval.Word(fields[1])}, eval.Number(fields[2])
	p.More = p.Next.Member != ""
	for row := fields[3:]; len(row) > 0; row = row[listFields:] {
		p.Rows = append(p.Rows, listed(row))
	}
	return p, nil
}

func listed(row []any) Listed {
	l := Listed{
		ID: eval.Word(row[0]), Place: Place{eval.Word(row[2]), eval.Word(row[0])}, At: when(eval.Word(row[2])), Lease: eval.Word(row[4]), Failures: history(eval.Word(row[6])), Route: eval.Word(row[7]),
		HasBody: eval.Number(row[8]) == 1, Body: []byte(eval.Word(row[9])), Head: eval.Word(row[10]), Behind: max(0, eval.Number(row[11])), Scheduled: eval.Number(row[12]) == 1,
	}
	if state := eval.Word(row[1]); state != "" {
		l.State = state[0]
	}
	l.Attempts, _ = strconv.Atoi(eval.Word(row[3]))
	if header := eval.Word(row[5]); len(header) > sequenceDigits {
		sequence, key := header[:sequenceDigits], header[sequenceDigits:]
		if l.Key = unescapeKey(key); l.State == 'w' {
			l.Place = Place{"0", key + "\x00" + sequence + "\x00" + l.ID}
		}
	}
	return l
}

// sequenceDigits is the number of digits at the beginning of a header.
const sequenceDigits = 16

// when returns the time of a score, or the zero time if the text contains no score.
func when(score string) time.Time {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil || math.IsInf(ms, 0) || math.IsNaN(ms) {
		return time.Time{}
	}
	return timeOf(ms)
}

// Failure is a failed attempt to publish an event.
type Failure struct {
	At      time.Time
	Attempt int
	Class   string // the class of the error, one word
	Text    string
}

// history parses the failures in the format of internal/lua/_errors.lua, newest first.
func history(text string) []Failure {
	var failures []Failure
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 {
			continue
		}
		attempt, _ := strconv.Atoi(fields[1])
		failures = append(failures, Failure{eval.Moment(fields[0]), attempt, fields[2], fields[3]})
	}
	return failures
}
