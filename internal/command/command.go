// Package command describes the commands that a transaction can contain: where their keys stand, whether they write,
// whether a caller needs their reply to continue, and how they are undone. It also gives the reason why each other
// command is refused.
//
// table_gen.go contains the facts that a server reports about its commands. policy.go contains the facts that no server
// reports.
package command

//go:generate go run ./gen -addr 127.0.0.1:6379 table
//go:generate go run ./gen docs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Guard is the way to repeat a read and compare its reply with the earlier one.
type Guard int

// The values of Guard.
const (
	GuardNone    Guard = iota // the command writes, or its reply depends on chance, time or the server
	GuardOrdered              // compare the reply as it is
	GuardMembers              // compare an array whose elements have no order
	GuardPairs                // compare an array of pairs that have no order
)

// Spec describes one command in the form that its arguments select.
type Spec struct {
	// Name is in capitals and includes the subcommand: SET, XGROUP CREATE.
	Name string
	// Since is the version of Redis that introduced the command. Group is its chapter in the documentation of Redis.
	Since, Group string
	// Arity counts the name and the subcommand, if there is one. A negative Arity is a minimum number of arguments.
	Arity int
	// Decides is true if a caller acts on the reply (GET, INCR, SETNX …). The reply is not available before the commit.
	Decides bool
	// Guard is the way to guard the command if it is a read. It is GuardNone if the command cannot be guarded.
	Guard Guard
	// Undo is the undo class with its digit, as described in internal/lua/_undo.lua. The class "-0" needs no undo.
	Undo string

	keys, changed span                                              // the positions of the keys, if they are fixed
	find          func(args []any) (keys, changed []int, err error) // finds the positions otherwise
	check         func(args []any) error                            // returns an error for the forms that are refused
}

// none is the undo class of commands that change nothing. listed is that of commands that change the keys at listed
// positions.
const (
	none   = "-0"
	listed = "m0"
)

// Lookup finds the command that the arguments begin with: its name and, if it has one, its subcommand, in any case. The
// error gives the reason why a transaction cannot contain the command, and an alternative.
func Lookup(args []any) (Spec, error) {
	if len(args) == 0 {
		return Spec{}, errors.New("the command is empty")
	}
	name, ok := args[0].(string)
	if !ok {
		return Spec{}, notAString(args[0])
	}
	r, called := table.find(name), args[:1]
	if r != nil && r.subcommands != nil {
		if len(args) == 1 {
			return Spec{}, fmt.Errorf("%s needs a subcommand", r.spec.Name)
		}
		r, called = r.subcommands.find(word(args[1])), args[:2]
	}
	switch {
	case r == nil:
		return Spec{}, fmt.Errorf("%.60v: unknown command; use the client outside of the transaction", called)
	case r.refusal != nil:
		return Spec{}, r.refusal
	case r.adapt != nil:
		return r.adapt(r.spec, args), nil
	}
	return r.spec, nil
}

// notAString returns the error for a command whose name is not a string. go-redis cannot route such a command either.
func notAString(name any) error {
	if text, ok := name.([]byte); ok {
		return fmt.Errorf("the command name is a []byte; use Do(ctx, %.60q, ...)", text)
	}
	return fmt.Errorf("the command name is %[2]v of type %[1]T; use Do(ctx, \"SET\", ...)", name, name)
}

// Writes reports whether the command changes anything in this form.
func (s Spec) Writes() bool { return s.Undo != none && s.Name != "PFCOUNT" }

// Check returns an error if the number or the form of the arguments, which include the name, is invalid for the
// command.
func (s Spec) Check(args []any) error {
	n := len(args)
	if s.Arity >= 0 && n != s.Arity || s.Arity < 0 && n < -s.Arity || s.keys.step == 2 && n%2 == 0 {
		return fmt.Errorf("%s: wrong number of arguments", s.Name)
	}
	if s.check != nil {
		return s.check(args)
	}
	return nil
}

// Keys returns the positions of the keys among the arguments, which must have passed Check. The slice is shared and
// must not be changed.
func (s Spec) Keys(args []any) ([]int, error) {
	if s.find == nil {
		return s.keys.positions(len(args)), nil
	}
	keys, _, err := s.find(args)
	return keys, err
}

// WriteKeys returns the positions of the keys that the command may change. The rules of Keys apply.
func (s Spec) WriteKeys(args []any) ([]int, error) {
	if s.find == nil {
		return s.changed.positions(len(args)), nil
	}
	_, changed, err := s.find(args)
	return changed, err
}

// Head returns the description of a command with these arguments for the script: its undo class, a digit and the number
// of arguments. For the class m, the positions of the keys that the command changes follow.
func (s Spec) Head(args []any) string {
	if heads, ok := heads[s.Undo]; ok && len(args) < len(heads) {
		return heads[len(args)]
	}
	head := s.Undo + strconv.Itoa(len(args))
	if s.Undo == listed {
		changed, err := s.WriteKeys(args)
		if err != nil {
			return none + strconv.Itoa(len(args)) // Keys has returned this error before
		}
		b := []byte(head)
		for _, i := range changed {
			b = strconv.AppendInt(append(b, ' '), int64(i), 10)
		}
		return string(b)
	}
	return head
}

// heads caches the descriptions for the usual numbers of arguments.
var heads = func() map[string][]string {
	all := make(map[string][]string)
	add := func(undo string) {
		all[undo] = make([]string, 24)
		for n := range all[undo] {
			all[undo][n] = undo + strconv.Itoa(n)
		}
	}
	for _, s := range All() {
		add(s.Undo)
	}
	for d := range 10 {
		add(digit(scores, d))
		add(digit(places, d))
	}
	add(plainAdd)
	delete(all, listed)
	return all
}()

// LuaTable lists, for procedures, the commands whose keys have fixed positions that do not depend on the other
// arguments: " NAME:first:last:step:undo:arity … ", sorted by name. It is one line that begins and ends with a space.
func LuaTable() string {
	var b strings.Builder
	b.WriteByte(' ')
	for _, s := range All() {
		if s.InProcedures() {
			fmt.Fprintf(&b, "%s:%d:%d:%d:%s:%d ", s.Name, s.keys.first, s.keys.last, s.keys.step, s.Undo, s.Arity)
		}
	}
	return b.String()
}

// InProcedures reports whether LuaTable lists the command.
func (s Spec) InProcedures() bool {
	return s.find == nil && s.check == nil && s.Undo != listed && !strings.Contains(s.Name, " ")
}
