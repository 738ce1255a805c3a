package luatx

import (
	"fmt"
	"regexp"
	"slices"
)

// Procedure is logic in Lua that runs on the server inside a commit: it reads, branches and writes at one moment,
// beside the recorded commands, and is undone with them. It is named by Tx.Call.
//
// Its source is the body of a function. It sees:
//
//   - its keys and arguments, under the names given here, and as KEYS and ARGV; arguments are strings;
//   - redis.call and redis.pcall, on its declared keys, with the commands that docs/commands.md allows in
//     procedures; at most Config.ProcedureCalls of them a run. Integers from 2^53 on are inexact, as ever in Lua;
//   - NOW, the server's time in milliseconds;
//   - emit(event), which adds an event to the outbox and returns its id. An event is a table of CloudEvents
//     attributes, type and source at least, and data; or emit(body, id) with a body as it is to be published. A third
//     argument orders it, {key = "an ordering key"}, or schedules it, {at = milliseconds}; see Event;
//   - abort(reason), which undoes the transaction; its caller gets an *AbortError. A message that is being handled is
//     nacked, delivered again, and in the end a dead letter;
//   - reject(reason), which is abort for a transaction that can never succeed: the message is not delivered again;
//   - string, table, math, cjson and what else Redis gives a script, but nothing that runs text as code.
//
// What it returns is the reply of Tx.Call; an error, its own or the server's, undoes the transaction. A procedure
// that loops without calling Redis blocks the server: nothing but a shutdown ends it after its first write.
type Procedure struct {
	// Name is what Tx.Call calls it by: letters, digits, dots, dashes and underscores, at most 64.
	Name string
	// Keys name the keys, as local variables of the source. Nil: any number, as KEYS.
	Keys []string
	// Args name the arguments, as local variables of the source. Nil: any number, as ARGV.
	Args []string
	// Source is the body of a Lua 5.1 function.
	Source string
}

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (p Procedure) validate() error {
	if !namespacePattern.MatchString(p.Name) {
		return fmt.Errorf("luatx: Config.Procedures: name %.80q: use at most 64 letters, digits, dots, dashes and underscores", p.Name)
	}
	if p.Source == "" {
		return fmt.Errorf("luatx: Config.Procedures: %s has no Source", p.Name)
	}
	seen := make(map[string]bool)
	for _, name := range slices.Concat(p.Keys, p.Args) {
		if !identifier.MatchString(name) || reservedNames[name] || seen[name] {
			return fmt.Errorf("luatx: Config.Procedures: %s: %q cannot name a key or an argument: use a Lua name, once", p.Name, name)
		}
		seen[name] = true
	}
	return nil
}

// reservedNames are names that a key or an argument must not hide.
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
