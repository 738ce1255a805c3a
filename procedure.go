package luatx

import (
	"fmt"
	"regexp"
	"slices"
)

// Procedure is Lua code that runs on the server inside a commit. It reads, branches and writes atomically, in order with the
// recorded commands, and is undone with them. Tx.Call calls it by its name.
//
// Its source is the body of a function, which can use:
//
//   - its keys and arguments, under the names given here, and as KEYS and ARGV; arguments are strings;
//   - redis.call and redis.pcall on its declared keys, with the commands that docs/commands.md allows in procedures, and at most
//     Config.ProcedureCalls times in one run; server, the name that Valkey gives to redis, is the same. Integers from 2^53 on are
//     inexact, as always in Lua;
//   - NOW, the server's time in milliseconds;
//   - emit(event), which adds an event to the outbox and returns its id. An event is a table with CloudEvents attributes, at least
//     type and source, and data. emit(body, id) adds an encoded body. A third argument orders the event,
//     {key = "an ordering key"}, or schedules it, {at = milliseconds}; see Event;
//   - abort(reason), which undoes the transaction; its caller gets an *AbortError. The message that is being handled is nacked,
//     delivered again, and finally becomes a dead letter;
//   - reject(reason), which is abort for a transaction that can never succeed: the message is not delivered again;
//   - string, table, math, cjson and everything else that Redis offers to scripts, except functions that run text as code.
//
// Its return value is the reply of Tx.Call. An error of the procedure or the server undoes the transaction. A procedure that
// loops without calling Redis blocks the server; after its first write, only a shutdown ends it.
type Procedure struct {
	// Name is the name for Tx.Call: letters, digits, dots, dashes and underscores, at most 64.
	Name string
	// Keys are the names of the keys, as local variables of the source. Nil allows any number of keys, as KEYS.
	Keys []string
	// Args are the names of the arguments, as local variables of the source. Nil allows any number of arguments, as ARGV.
	Args []string
	// Source is the body of a Lua 5.1 function.
	Source string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (p Procedure) validate() error {
	if !namespacePattern.MatchString(p.Name) {
		return fmt.Errorf("luatx: Config.Procedures: name %.80q; use at most 64 letters, digits, dots, dashes and underscores", p.Name)
	}
	if p.Source == "" {
		return fmt.Errorf("luatx: Config.Procedures: %s has no Source", p.Name)
	}
	seen := make(map[string]bool)
	for _, name := range slices.Concat(p.Keys, p.Args) {
		if !identifier.MatchString(name) || reservedNames[name] || seen[name] {
			return fmt.Errorf("luatx: Config.Procedures: %s: %q cannot name a key or an argument; use a Lua name, once", p.Name, name)
		}
		seen[name] = true
	}
	return nil
}

// reservedNames are the names that a key or an argument must not hide.
var reservedNames = func() map[string]bool {
	names := make(map[string]bool)
	for _, name := range []string{
		"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not",
		"or", "repeat", "return", "then", "true", "until", "while",
		"redis", "KEYS", "ARGV", "NOW", "emit", "abort", "reject", "name",
	} {
		names[name] = true
	}
	return names
}()

func validateProcedures(procedures []Procedure) error {
	seen := make(map[string]bool)
	for _, p := range procedures {
		if err := p.validate(); err != nil {
			return err
		}
		if seen[p.Name] {
			return fmt.Errorf("luatx: Config.Procedures: there are two of the name %s", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
