package eval

// single is the load of a call that does not share its script.
type single struct {
	script *Script
	argv   []any
}

// Seal implements Load. The arguments are the call's own.
func (l single) Seal() (args, bytes int) {
	for _, arg := range l.argv {
		switch arg := arg.(type) {
		case string:
			bytes += len(arg)
		case []byte:
			bytes += len(arg)
		}
	}
	return len(l.argv), bytes
}

// Join implements Load.
func (l single) Join(Load) (Load, bool) { return l, false }

// Pack implements Load.
func (l single) Pack([]*Call) (*Script, []any, [][]any) { return l.script, l.argv, nil }

// Again implements Load.
func (single) Again(any, int) bool { return false }
