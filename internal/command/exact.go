package command

import (
	"slices"
	"strconv"
	"strings"
)

// inexact is the smallest width, in bits, at which integers of a bit field are not exact as numbers of Lua.
const inexact = 54

// Exact returns the arguments to send instead of args, and the function that converts the reply to the original one.
// The function is nil if the reply needs no conversion. A script cannot return integers beyond 2^53 as numbers.
// Counters are therefore returned as texts, and a BITFIELD also reads wide integers in two halves.
func Exact(args []any) (sent []any, read func(reply any) any) {
	if len(args) == 0 {
		return args, nil
	}
	name, _ := args[0].(string)
	if r := table.find(name); r != nil {
		return r.spec.Exact(args)
	}
	return args, nil
}

// Exact is like the function Exact, for arguments that begin with this command.
func (s Spec) Exact(args []any) (sent []any, read func(reply any) any) {
	switch s.Name {
	case "INCR", "DECR", "INCRBY", "DECRBY", "HINCRBY":
		return args, toInteger
	case "BITFIELD", "BITFIELD_RO":
		return exactBitfield(args)
	}
	return args, nil
}

func toInteger(reply any) any {
	if text, ok := reply.(string); ok {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	return reply
}

func exactBitfield(args []any) (sent []any, read func(reply any) any) {
	if len(args) < 5 {
		return args, nil
	}
	sent = slices.Clone(args[:2])
	var values []halves // for each value of the original reply
	length, some := 0, false
	for i := 2; i < len(args); {
		op := strings.ToUpper(word(args[i]))
		n := map[string]int{"GET": 3, "SET": 4, "INCRBY": 4, "OVERFLOW": 2}[op]
		if n == 0 || i+n > len(args) {
			return args, nil // the server returns an error
		}
		part := args[i : i+n]
		i += n
		if op == "OVERFLOW" {
			sent = append(sent, part...)
			continue
		}
		value := halves{whole: length, high: -1}
		extra := split(part)
		switch {
		case extra == nil:
			sent = append(sent, part...)
			length++
		case op == "INCRBY": // INCRBY returns the new value
			sent = append(append(sent, part...), extra...)
			value.high = length + 1
			length += 3
		default: // the others return the old one
			sent = append(append(sent, extra...), part...)
			value = halves{whole: length + 2, high: length}
			length += 3
		}
		some = some || extra != nil
		values = append(values, value)
	}
	if !some {
		return args, nil
	}
	return sent, func(reply any) any { return join(reply, values, length) }
}

// halves contains the position of a value in a reply, and the position of its high half, or -1 if it is not split. The
// low half follows the high half.
type halves struct{ whole, high int }

// split returns the GETs for the two halves of the integer that GET, SET or INCRBY accesses, or nil if the integer is
// not wide.
func split(part []any) []any {
	kind, at := word(part[1]), word(part[2])
	if kind == "" {
		return nil
	}
	width, err := strconv.Atoi(kind[1:])
	if err != nil || width < inexact || width > 64 {
		return nil
	}
	index, isIndex := strings.CutPrefix(at, "#")
	offset, err := strconv.ParseInt(index, 10, 64)
	if err != nil || offset < 0 || offset > 1<<40 {
		return nil
	}
	if isIndex {
		offset *= int64(width)
	}
	return []any{"GET", kind[:1] + strconv.Itoa(width-32), offset, "GET", "u32", offset + int64(width) - 32}
}

// join converts a reply that contains halves to the original reply.
func join(reply any, values []halves, length int) any {
	all, ok := reply.([]any)
	if !ok || len(all) != length {
		return reply
	}
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = all[v.whole]
		if v.high < 0 || out[i] == nil { // nil: an overflow that failed
			continue
		}
		high, okHigh := all[v.high].(int64)
		low, okLow := all[v.high+1].(int64)
		if okHigh && okLow {
			out[i] = high<<32 | low
		}
	}
	return out
}
