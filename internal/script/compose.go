package script

import (
	"strings"

	"github.com/luatx/luatx/lua"
)

// commitText is the commit script behind its constants. A script makes its functions anew at each run, and that
// costs: those that few transactions need are made when one does, by undos() and rare().
var commitText = "local undos, rare\n" +
	lua.Source("_time", "_inbox", "_undo", "_events") +
	lazily("undos", []string{"_undo_more"},
		"too_large", "unread", "push_many", "push_expiry", "push_whole", "push_other", "excuse") +
	lazily("rare", []string{"_rollback", "_reply", "_results", "_emit", "_procedure"},
		"restore", "rollback", "withdraw", "rehearse", "error_text", "failure", "exact",
		"conflict", "keep_replies", "kept_replies", "emitter", "call_procedure") +
	lua.Source("commit")

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
