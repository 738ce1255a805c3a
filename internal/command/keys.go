package command

import (
	"encoding"
	"errors"
	"fmt"
	"strconv"
)

// span is a run of positions. A negative last counts from the end: -1 is the last argument. The zero span is empty.
type span struct{ first, last, step int }

// The positions of the keys of nearly all commands are slices of these.
var (
	every  = sequence(1)
	second = sequence(2)
)

func sequence(step int) []int {
	all := make([]int, 256)
	for i := range all {
		all[i] = 1 + i*step
	}
	return all
}

// positions returns the positions in a command with n arguments.
func (s span) positions(n int) []int {
	last := s.last
	if last < 0 {
		last += n
	}
	last = min(last, n-1)
	if s.step == 0 || last < s.first {
		return nil
	}
	count := (last-s.first)/s.step + 1
	switch {
	case s.step == 1 && last <= len(every):
		return every[s.first-1 : last : last]
	case s.step == 2 && s.first == 1 && count <= len(second):
		return second[:count:count]
	}
	all := make([]int, count)
	for i := range all {
		all[i] = s.first + i*s.step
	}
	return all
}

// finders converts a server's key specifications to the fastest way to find the keys.
func (f Fact) finders() (keys, changed span, find func([]any) ([]int, []int, error)) {
	simple := true
	for _, k := range f.Keys {
		simple = simple && k.Place == Fixed
	}
	all, okAll := merge(f.Keys)
	some, okSome := merge(f.changes())
	if simple && okAll && okSome {
		return all, some, nil
	}
	specs, changing := f.Keys, f.changes()
	return span{}, span{}, func(args []any) ([]int, []int, error) {
		keys, err := walk(specs, args)
		if err != nil {
			return nil, nil, err
		}
		changed, err := walk(changing, args)
		return keys, changed, err
	}
}

// changes returns the specifications of the keys that the command may change. A server reports the streams of
// XREADGROUP as read only, but XREADGROUP changes their groups.
func (f Fact) changes() []KeySpec {
	if f.Flags&Write == 0 {
		return nil
	}
	var changing []KeySpec
	for _, k := range f.Keys {
		if k.Changes {
			changing = append(changing, k)
		}
	}
	if changing == nil {
		return f.Keys
	}
	return changing
}

// merge combines consecutive specifications into one span, if they form one.
func merge(specs []KeySpec) (span, bool) {
	var whole span
	for i, k := range specs {
		next := span{k.Begin, k.Last, k.Step}
		if k.Last >= 0 {
			next.last += k.Begin
		}
		switch {
		case i == 0:
			whole = next
		case whole.step == 1 && next.step == 1 && whole.last == next.first-1:
			whole.last = next.last
		default:
			return span{}, false
		}
	}
	return whole, true
}

// walk finds the keys of specifications that include counted keys.
func walk(specs []KeySpec, args []any) ([]int, error) {
	var keys []int
	for _, k := range specs {
		positions := span{k.Begin, k.Last, k.Step}
		switch {
		case k.Place == Hidden:
			return nil, errors.New("the positions of its keys are unknown; use the client outside of the transaction")
		case k.Place == Counted:
			n, err := number(args, k.Begin, k.Step)
			if err != nil {
				return nil, err
			}
			positions = span{k.Begin + 1, k.Begin + n*k.Step, k.Step}
		case k.Last >= 0:
			positions.last += k.Begin
		}
		keys = append(keys, positions.positions(len(args))...)
	}
	return keys, nil
}

// number reads the number of keys that follow position i. With a step of 2, a value follows each key.
func number(args []any, i, step int) (int, error) {
	n := 0
	if i < len(args) {
		n, _ = strconv.Atoi(word(args[i]))
	}
	if n < 1 || n > (len(args)-1-i)/step {
		return 0, fmt.Errorf("%.40v: argument %d must be the number of the following keys", args[0], i)
	}
	return n, nil
}

// word returns the text that go-redis sends for an argument that may be an option or a count, or "" for other
// arguments.
func word(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case encoding.BinaryMarshaler:
		b, err := v.MarshalBinary()
		if err != nil {
			return ""
		}
		return string(b)
	}
	return ""
}
