package commit

import (
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/shard"
)

// commitText is the commit script behind its constants. A script makes its functions anew at each run, and that
// costs: those that few transactions need are made when one does, by undos(), rare() and guarding().
var commitText = shard.Made + "local undos, rare, guarding, lanes\n" +
	lua.Source("_time", "_inbox", "_events", "_undo") +
	shard.Lazily("undos", []string{"_undo_more"},
		"too_large", "unread", "push_expiry", "push_whole", "push_other", "excuse") +
	shard.Lazily("rare", []string{"_rollback", "_reply", "_results", "_refusal", "_emit", "_procedure"},
		"restore", "rollback", "rehearse", "no_room", "error_text", "failure", "exact", "known",
		"keep_replies", "emitter", "call_procedure") +
	shard.Lazily("guarding", []string{"_reply", "_guard"}, "conflict") +
	shard.LazyLanes +
	lua.Source("commit")

// enqueueText is the script that enqueues beside a transaction.
var enqueueText = shard.Made + "local undoing, lanes\n" +
	lua.Source("_time", "_events") +
	shard.Lazily("undoing", []string{"_rollback"}, "rollback") +
	shard.LazyLanes +
	lua.Source("enqueue")
