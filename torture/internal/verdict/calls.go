package verdict

import (
	"github.com/luatx/luatx/torture/internal/history"
)

// Call is a call with all of its tries that have returned.
type Call struct {
	history.Line
	Tries []history.Line
}

// Story holds the histories of all processes.
type Story struct {
	Calls  map[string]*Call
	Puts   map[string]history.Line // by input: the last line of its write
	Peeks  []history.Line
	Events map[string]map[string]bool // by input: the ids of the events that its runs would create
	Runs   int                        // number of handler runs
}

// Tell reads the histories of a directory.
func Tell(dir string) (*Story, error) {
	s := &Story{Calls: map[string]*Call{}, Puts: map[string]history.Line{}, Events: map[string]map[string]bool{}}
	err := history.Read(dir, func(line history.Line) error {
		s.add(line)
		return nil
	})
	return s, err
}

func (s *Story) add(line history.Line) {
	switch line.Kind {
	case history.Begun:
		s.Calls[line.ID] = &Call{Line: line}
	case history.Told:
		if line.Op == history.Peek {
			s.Peeks = append(s.Peeks, line)
		} else if call := s.Calls[line.ID]; call != nil {
			call.Tries = append(call.Tries, line)
		}
	case history.Put:
		s.Puts[line.ID] = line
	case history.Ran:
		s.Runs++
		if s.Events[line.ID] == nil {
			s.Events[line.ID] = map[string]bool{}
		}
		s.Events[line.ID][line.Event] = true
	}
}

// acked returns the first try that reported the effect as applied.
func (c *Call) acked() (history.Line, bool) {
	for _, try := range c.Tries {
		if try.Outcome.In() {
			return try, true
		}
	}
	return history.Line{}, false
}

// open reports whether a try with an unknown result may have been applied.
func (c *Call) open() bool {
	if len(c.Tries) == 0 || c.Tries[len(c.Tries)-1].Again {
		return true // its process was killed during the try
	}
	for _, try := range c.Tries {
		if try.Outcome == history.Unknown {
			return true
		}
	}
	return false
}
