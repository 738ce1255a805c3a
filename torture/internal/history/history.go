// Package history records the actions of the run's processes and their results, as one line of JSON each. Each line is
// written immediately, so that it survives a kill of the process.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Kinds of lines.
const (
	Begun = "begun" // a call is about to be made for the first time
	Told  = "told"  // one try of the call has returned
	Put   = "put"   // an input is about to be written to a stream; a second line has the result
	Ran   = "ran"   // a handler ran for an input; Event is the event that it would create
)

// Operations of calls, in addition to the kinds of effects.
const (
	Guarded   = "guarded"
	Procedure = "procedure"
	Send      = "send"
	Doomed    = "doomed" // must fail and leave nothing
	Deposit   = "deposit"
	CellMove  = "cell-guarded"
	CellCall  = "cell-procedure"
	Peek      = "peek"
)

// Line is one line. Times are in nanoseconds of the machine's clock.
type Line struct {
	Kind   string `json:"k"`
	ID     string `json:"id"`
	Op     string `json:"op,omitempty"`
	Branch int    `json:"b"`
	From   string `json:"f,omitempty"`
	To     string `json:"to,omitempty"`
	Amount int64  `json:"a,omitempty"`
	Cell   int64  `json:"c,omitempty"` // epoch of the cell, or 0
	Start  int64  `json:"s,omitempty"`
	End    int64  `json:"e,omitempty"`

	Outcome    Outcome `json:"o,omitempty"`
	Replicated bool    `json:"r,omitempty"`
	Value      string  `json:"v,omitempty"` // the result of the call, or empty if unknown
	Event      string  `json:"ev,omitempty"`
	Err        string  `json:"err,omitempty"`
	Again      bool    `json:"more,omitempty"` // another try follows
}

// Outcome is the result of a try.
type Outcome string

// Outcomes.
const (
	Committed Outcome = "committed"
	Replayed  Outcome = "replayed"
	Duplicate Outcome = "duplicate"
	Short     Outcome = "short"   // insufficient funds: the call read the balance and did nothing
	Nothing   Outcome = "nothing" // any other error that guarantees that nothing was written
	Unknown   Outcome = "unknown"
)

// In reports whether the effect is applied.
func (o Outcome) In() bool { return o == Committed || o == Replayed || o == Duplicate }

// Log is the history of one process. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// Create creates a history in the directory.
func Create(dir, name string) (*Log, error) {
	file, err := os.OpenFile(filepath.Join(dir, name+".history"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: file}, nil
}

// CheckClock returns an error unless this process' clock differs by skew from the kernel's clock, which has just set the
// time of the file.
func (l *Log) CheckClock(skew time.Duration) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if off := time.Since(info.ModTime()); (off - skew).Abs() > time.Minute {
		return fmt.Errorf("the clock is off by %v, want %v", off.Round(time.Second), skew)
	}
	return nil
}

// Add writes a line.
func (l *Log) Add(line Line) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(text, '\n'))
	return err
}

// Close closes the history.
func (l *Log) Close() error { return l.file.Close() }

// Read calls each for every line of all histories of the directory, one process after another.
func Read(dir string, each func(Line) error) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.history"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := readFile(name, each); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	return nil
}

func readFile(name string, each func(Line) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	in := bufio.NewReaderSize(file, 1<<16)
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a kill has cut off the last line
		}
		if err != nil {
			return err
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		if err := each(line); err != nil {
			return err
		}
	}
}
