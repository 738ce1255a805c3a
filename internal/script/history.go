package script

import (
	"strconv"
	"strings"
	"time"
)

// Failure is a failed attempt to publish an event.
type Failure struct {
	At      time.Time
	Attempt int
	Class   string // of the error, in a word
	Text    string
}

// history reads what lua/_errors.lua keeps, newest first.
func history(text string) []Failure {
	var failures []Failure
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.SplitN(line, " ", 4)
		if len(fields) < 4 {
			continue
		}
		attempt, _ := strconv.Atoi(fields[1])
		failures = append(failures, Failure{moment(fields[0]), attempt, fields[2], fields[3]})
	}
	return failures
}
