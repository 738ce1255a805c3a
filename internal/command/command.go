// Package command knows the commands that a transaction may hold: where their keys stand, whether they write,
// whether a caller needs the reply to go on, how they are undone; and why the others are refused.
//
// table_gen.go has the facts that a server reports about its commands. policy.go has the facts that
// no server reports.
package command

//go:generate go run ./gen -addr 127.0.0.1:6379 table
//go:generate go run ./gen docs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Guard says how a read can be run again to see whether its reply is still the same.
type Guard int

// The values of Guard.
const (
	GuardNone    Guard = iota // it writes, or its reply differs with chance, time or the server
	GuardOrdered              // the reply as it is
	GuardMembers              // an array in no order
	GuardPairs                // an array of pairs in no order
)

// Spec describes one command in the form that its arguments give it.
type Spec struct {
	// Name in capitals, with its subcommand: SET, XGROUP CREATE.
	Name string
	// Since is the version of Redis that brought it, Group its chapter in the documentation of Redis.
	Since, Group string
	// Arity counts the name, and a subcommand, too; negative: at least that many arguments.
	Arity int
	// Decides is true where a caller acts on the reply (GET, INCR, SETNX …): before the commit there is none.
	Decides bool
	// Guard says whether and how the read can be guarded.
	Guard Guard
	// Undo is the undo class with its digit, as internal/lua/_undo.lua describes them; "-0" needs none.
	Undo string

	keys, changed span                                              // where the keys stand, where fixed
	find          func(args []any) (keys, changed []int, err error) // else
	check         func(args []any) error                            // refuses some forms
}

// none is the undo of what changes nothing, listed that of what changes the keys at listed positions.
const (
	none   = "-0"
	listed = "m0"
)

// Lookup finds the command that the arguments begin with, its name and where it has one its subcommand, in any
// case. The error says why it cannot stand in a transaction, and what to do instead.
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

// notAString is the error of a command whose name is not a string, which go-redis cannot route either.
func notAString(name any) error {
	if text, ok := name.([]byte); ok {
		return fmt.Errorf("the command name is a []byte; use Do(ctx, %.60q, ...)", text)
	}
	return fmt.Errorf("the command name is %[2]v of type %[1]T; use Do(ctx, \"SET\", ...)", name, name)
}

// Writes reports whether the command, in this form, changes anything.
func (s Spec) Writes() bool { return s.Undo != none && s.Name != "PFCOUNT" }

// Check reports whether the arguments, the name included, suit the command, in number and in form.
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

// Keys returns the position of each key among the arguments, which have passed Check. The slice is shared and
// must not be changed.
func (s Spec) Keys(args []any) ([]int, error) {
	if s.find == nil {
		return s.keys.positions(len(args)), nil
	}
	keys, _, err := s.find(args)
	return keys, err
}

// WriteKeys returns the positions of the keys that the command may change, as Keys does.
func (s Spec) WriteKeys(args []any) ([]int, error) {
	if s.find == nil {
		return s.changed.positions(len(args)), nil
	}
	_, changed, err := s.find(args)
	return changed, err
}

// Head returns the description of a command with these arguments for the script: its undo class, a digit, the
// number of arguments, and for the class m the positions of the keys that it changes.
func (s Spec) Head(args []any) string {
	if heads, ok := heads[s.Undo]; ok && len(args) < len(heads) {
		return heads[len(args)]
	}
	head := s.Undo + strconv.Itoa(len(args))
	if s.Undo == listed {
		changed, err := s.WriteKeys(args)
		if err != nil {
			return none + strconv.Itoa(len(args)) // Keys has said so before
		}
		b := []byte(head)
		for _, i := range changed {
			b = strconv.AppendInt(append(b, ' '), int64(i), 10)
		}
		return string(b)
	}
	return head
}

// heads are those of the usual numbers of arguments, made once.
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

// LuaTable lists, for procedures, the commands whose keys stand at fixed places whatever the other arguments are:
// " NAME:first:last:step:undo:arity … ", in the order of their names. It is one line with a space at either end.
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
