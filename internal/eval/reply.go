package eval

import (
	"fmt"
	"strconv"
	"time"
)

// Timed splits a reply into the server's time, which is the first element as a number or as text, and the other
// elements.
func Timed(reply any) (time.Time, []any, error) {
	rows, _ := reply.([]any)
	if len(rows) < 2 {
		return time.Time{}, nil, Malformed("any", reply)
	}
	ms, number := rows[0].(int64)
	if !number {
		var err error
		if ms, err = strconv.ParseInt(Word(rows[0]), 10, 64); err != nil {
			return time.Time{}, nil, Malformed("any", reply)
		}
	}
	return time.UnixMilli(ms), rows[1:], nil
}

// Malformed returns the error for a reply that the script never returns.
func Malformed(script string, reply any) error {
	return fmt.Errorf("script %s: unexpected reply %.200v", script, reply)
}

// Word returns the text in a reply, or "" for any other type.
func Word(v any) string {
	text, _ := v.(string)
	return text
}

// Number returns the integer in a reply, or 0 for any other type.
func Number(v any) int {
	n, _ := v.(int64)
	return int(n)
}

// Moment parses a time in milliseconds.
func Moment(text string) time.Time {
	ms, _ := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms)
}

// Millis formats a time in milliseconds.
func Millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
