package shard

import (
	"strconv"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/eval"
)

// Failure is a failed attempt to publish an event.
type Failure struct {
	At      time.Time
	Attempt int
	Class   string // of the error, in a word
	Text    string
}

// history reads what internal/lua/_errors.lua keeps, newest first.
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
