package commit

import (
	"slices"
	"testing"
)

// TestProbe holds what is made of the script's answer: commits are told of it from then on.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply any
		lacks []string
		sent  string // "": malformed
	}{
		{[]any{"2"}, nil, "2"},
		{[]any{"1"}, nil, "1"},
		{[]any{"1", "HDEL", "SET"}, []string{"HDEL", "SET"}, "1"},
		{nil, nil, ""},
		{"2", nil, ""},
		{[]any{}, nil, ""},
		{[]any{"3"}, nil, ""},
		{[]any{int64(2)}, nil, ""},
		{[]any{"1", int64(1)}, nil, ""},
	} {
		set := newReplying(t, c.reply)
		lacks, restores, err := set.Probe(t.Context(), set.Shard(0), func(error) {})
		if (err == nil) != (c.sent != "") || !slices.Equal(lacks, c.lacks) || restores != (c.sent == "2") {
			t.Errorf("%v: lacks %q, restores %t, %v", c.reply, lacks, restores, err)
		}
		if c.sent != "" && set.stringsOnly.Load() != (c.sent == "1") {
			t.Errorf("%v: commits are told that strings alone are restored: %t", c.reply, set.stringsOnly.Load())
		}
	}
}
