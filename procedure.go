package luatx

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/commit"
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
		if !identifier.MatchString(name) || reserved[name] || seen[name] {
			return fmt.Errorf("luatx: Config.Procedures: %s: %q cannot name a key or an argument: use a Lua name, once", p.Name, name)
		}
		seen[name] = true
	}
	return nil
}

// reserved are names that a key or an argument must not hide.
var reserved = func() map[string]bool {
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

// callCommand is the name under which a procedure's call is recorded.
const callCommand = "luatx.call"

// Call records a call of a procedure of the configuration, among the transaction's commands in their order. Keys must
// share the transaction's slot. The reply is there after the commit, ErrNotCommitted until then.
func (tx *Tx) Call(name string, keys []string, args ...any) *redis.Cmd {
	argv := make([]any, 0, 3+len(keys)+len(args))
	argv = append(argv, callCommand, name, len(keys))
	for _, key := range keys {
		argv = append(argv, key)
	}
	cmd := redis.NewCmd(context.Background(), append(argv, args...)...)
	if err := tx.Pipeline().Process(context.Background(), cmd); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// checkCall checks a recorded call.
func (tx *Tx) checkCall(args []any) error {
	name, keys, rest, ok := splitCall(args)
	if !ok || len(args) > maxArgs {
		return fmt.Errorf("%w: %s: use Tx.Call, with at most %d keys and arguments", ErrCommandRefused, callCommand, maxArgs)
	}
	i := slices.IndexFunc(tx.t.cfg.Procedures, func(p Procedure) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: there is no procedure %.80q: add it to Config.Procedures", ErrCommandRefused, name)
	}
	p := tx.t.cfg.Procedures[i]
	if p.Keys != nil && len(keys) != len(p.Keys) || p.Args != nil && len(rest) != len(p.Args) {
		return fmt.Errorf("%w: procedure %s takes %d keys and %d arguments, and was called with %d and %d",
			ErrCommandRefused, name, len(p.Keys), len(p.Args), len(keys), len(rest))
	}
	for _, key := range keys {
		if err := tx.checkKey(name, key); err != nil {
			return err
		}
	}
	return nil
}

// splitCall takes a recorded call apart: the name, how many keys there are, these, the arguments.
func splitCall(args []any) (name string, keys, rest []any, ok bool) {
	if len(args) < 3 {
		return "", nil, nil, false
	}
	name, named := args[1].(string)
	n, counted := args[2].(int)
	if !named || !counted || n < 0 || n > len(args)-3 {
		return "", nil, nil, false
	}
	return name, args[3 : 3+n], args[3+n:], true
}

// layCall is lay for a call.
func layCall(args []any) (commit.Command, []int, bool) {
	if args[0] != callCommand {
		return commit.Command{}, nil, false
	}
	_, keys, _, ok := splitCall(args)
	positions := make([]int, len(keys))
	for i := range positions {
		positions[i] = 3 + i
	}
	return commit.Command{Head: "p0" + strconv.Itoa(len(args)-1), Args: args[1:]}, positions, ok
}

func (tx *Tx) abortError(out *commit.Outcome) error {
	err := &AbortError{Index: out.Index - 1, Reason: out.Text, Permanent: out.State == commit.Rejected}
	if cmds := tx.recorder.Cmds(); err.Index >= 0 && err.Index < len(cmds) {
		err.Procedure, _, _, _ = splitCall(cmds[err.Index].Args())
	}
	return err
}
