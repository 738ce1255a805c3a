package script

import (
	"strings"

	"github.com/luatx/luatx/lua"
)

// commitText is the commit script behind its constants. A script makes its functions anew at each run, and that
// costs: those that few transactions need are made when one does, by undos() and rare().
var commitText = "local undos, rare, lanes\n" +
	lua.Source("_time", "_inbox", "_undo", "_events") +
	lazily("undos", []string{"_undo_more"},
		"too_large", "unread", "push_many", "push_expiry", "push_whole", "push_other", "excuse") +
	lazily("rare", []string{"_withdraw", "_rollback", "_reply", "_results", "_emit", "_procedure"},
		"restore", "rollback", "withdraw", "rehearse", "no_room", "error_text", "failure", "exact",
		"conflict", "keep_replies", "kept_replies", "emitter", "call_procedure") +
	lazyLanes +
	lua.Source("commit")

// enqueueText is the script that enqueues beside a transaction.
var enqueueText = "local undoing, lanes\n" +
	lua.Source("_time", "_events") +
	lazily("undoing", []string{"_withdraw"}, "withdraw") +
	lazyLanes +
	lua.Source("enqueue")

// lazyLanes is what enqueues events that are not plain.
var lazyLanes = lazily("lanes", []string{"_outbox", "_lanes", "_enter"}, "crowded", "enter")

// onOutbox is a script on a shard's outbox, with everything that they share.
func onOutbox(names ...string) string {
	return lua.Source(append([]string{"_time", "_outbox", "_lanes", "_errors", "_park", "_lease"}, names...)...)
}

// lazily is a function that returns a table of what fragments define, made at its first call.
func lazily(name string, fragments []string, defined ...string) string {
	var b strings.Builder
	b.WriteString("local made_" + name + "\nfunction " + name + "()\nif made_" + name + " then return made_" + name + " end\n")
	b.WriteString(lua.Source(fragments...))
	b.WriteString("made_" + name + " = {")
	for _, d := range defined {
		b.WriteString(d + " = " + d + ", ")
	}
	b.WriteString("}\nreturn made_" + name + "\nend\n")
	return b.String()
}
