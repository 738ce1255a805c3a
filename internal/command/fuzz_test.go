package command

import (
	"slices"
	"strings"
	"testing"
)

// FuzzArgumentsHaveValidKeyPositions also tests that each changed key is a key.
func FuzzArgumentsHaveValidKeyPositions(f *testing.F) {
	for _, line := range keyLines {
		f.Add(line)
	}
	for _, c := range keyCases {
		f.Add(c.args)
	}
	for _, line := range []string{"BITFIELD k OVERFLOW FAIL INCRBY i64 #1 5", "ZADD", "ZADD k NX", "XADD k MAXLEN ~", "SORT k LIMIT", "LMPOP 9 k", "XREAD COUNT"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := words(line)
		s, err := Lookup(args)
		if err != nil || s.Check(args) != nil {
			return
		}
		keys, err := s.Keys(args)
		changed, errChanged := s.WriteKeys(args)
		if err != nil || errChanged != nil {
			return
		}
		for _, at := range slices.Concat(keys, changed) {
			if at < 1 || at >= len(args) {
				t.Errorf("%q: a key at %d", args, at)
			}
		}
		for _, at := range changed {
			if !slices.Contains(keys, at) {
				t.Errorf("%q: changes %d, and the keys are at %v", args, at, keys)
			}
		}
		if len(keys) == 0 {
			t.Errorf("%q: no keys", args)
		}
		if head := s.Head(args); strings.HasPrefix(head, listed) && len(changed) == 0 {
			t.Errorf("%q: head %q without a key", args, head)
		}
		sent, _ := Exact(args)
		if len(sent) < len(args) || sent[0] != args[0] || sent[1] != args[1] {
			t.Errorf("%q: sent as %q", args, sent)
		}
	})
}
