package script

import (
	"strings"

	"github.com/luatx/luatx/lua"
)

// commitText is the commit script behind its constants. A script makes its functions anew at each run, and that
// costs: those that few transactions need are made when one does, by undos(), rare() and guarding().
var commitText = made + "local undos, rare, guarding, lanes\n" +
	lua.Source("_time", "_inbox", "_events", "_undo") +
	lazily("undos", []string{"_undo_more"},
		"too_large", "unread", "push_expiry", "push_whole", "push_other", "excuse") +
	lazily("rare", []string{"_rollback", "_reply", "_results", "_refusal", "_emit", "_procedure"},
		"restore", "rollback", "rehearse", "no_room", "error_text", "failure", "exact", "known",
		"keep_replies", "emitter", "call_procedure") +
	lazily("guarding", []string{"_reply", "_guard"}, "conflict") +
	lazyLanes +
	lua.Source("commit")

// enqueueText is the script that enqueues beside a transaction.
var enqueueText = made + "local undoing, lanes\n" +
	lua.Source("_time", "_events") +
	lazily("undoing", []string{"_rollback"}, "rollback") +
	lazyLanes +
	lua.Source("enqueue")

// lazyLanes is what enqueues events that are not plain.
var lazyLanes = lazily("lanes", []string{"_outbox", "_lanes", "_enter"}, "crowded", "enter")

// onOutbox is a script on a shard's outbox, with everything that they share.
func onOutbox(names ...string) string {
	return lua.Source(append([]string{"_time", "_full", "_outbox", "_lanes", "_errors", "_park", "_lease"}, names...)...)
}

// made is where lazily keeps what it has made.
const made = "local made = {}\n"

// lazily is a function that returns a table of what fragments define, made at its first call.
func lazily(name string, fragments []string, defined ...string) string {
	var b strings.Builder
	b.WriteString("function " + name + "()\nif made." + name + " then return made." + name + " end\n")
	b.WriteString(lua.Source(fragments...))
	b.WriteString("made." + name + " = {")
	for _, d := range defined {
		b.WriteString(d + " = " + d + ", ")
	}
	b.WriteString("}\nreturn made." + name + "\nend\n")
	return b.String()
}
