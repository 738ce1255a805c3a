package admin_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/lua"
	"github.com/luatx/luatx/internal/test/redistest"
)

// administration are commands that none of luatx's users may run.
var administration = []string{
	"CONFIG GET requirepass", "CONFIG GET masterauth", "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG REWRITE",
	"ACL LIST", "ACL GETUSER default", "ACL SETUSER me +@all", "ACL LOG",
	"KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "SELECT 1",
	"SCRIPT FLUSH", "SCRIPT KILL", "MONITOR", "CLIENT LIST", "CLIENT KILL 127.0.0.1:1", "DEBUG SLEEP 0", "SLOWLOG GET",
	"SAVE", "REPLICAOF 127.0.0.1 1", "MIGRATE 127.0.0.1 1 shop:k 0 1", "MODULE LIST",
}

// onForeignKeys are uses of a key that is not one of the user's.
var onForeignKeys = []string{
	"GET other:k", "SET other:k v", "DEL other:k", "UNLINK other:k", "HGETALL other:k", "EXISTS other:k", "TYPE other:k", "DUMP other:k",
	"XADD other:k * f v", "ZRANGE other:k 0 -1", "RENAME shop:k other:k", "RENAME other:k shop:k",
}

// viaScript runs a command in a script that the administrator has loaded.
func viaScript(t *testing.T, admin, user *redis.Client, command string) error {
	t.Helper()
	sha, err := admin.ScriptLoad(t.Context(), "return redis.call('"+strings.Join(strings.Fields(command), "','")+"')").Result()
	redistest.Must(t, err)
	return user.EvalSha(t.Context(), sha, nil).Err()
}

// isDenied reports whether the server rejected a command, or does not know it.
func isDenied(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	for _, reason := range []string{"noperm", "no permission", "can't access", "can't run this command", "acl failure", "unknown", "not allowed from script"} {
		if strings.Contains(text, reason) {
			return true
		}
	}
	return false
}

// reachesNothingElse checks that a user may neither administer the server nor touch foreign keys, sent as commands or
// run by a script that the user can call.
func reachesNothingElse(t *testing.T, server *redistest.Server, name string) {
	t.Helper()
	user := server.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" })
	for _, command := range slices.Concat(administration, onForeignKeys) {
		args := make([]any, 0, 6)
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		if reply, err := user.Do(t.Context(), args...).Result(); !isDenied(err) {
			t.Errorf("%s may run %s: %v, %v", name, command, reply, err)
		}
		if err := viaScript(t, server.Admin(t), user, command); !isDenied(err) {
			t.Errorf("%s may run %s in a script: %v", name, command, err)
		}
	}
	if err := server.Admin(t).Get(t.Context(), "other:k").Err(); err != nil {
		t.Errorf("the foreign key after %s: %v", name, err)
	}
}

func TestMinimalUsersCannotReadSecretsOrReachForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	root := server.Admin(t)
	redistest.Must(t, root.Set(t.Context(), "other:k", "theirs", 0).Err())
	tr, err := luatx.New(root, luatx.Config{Namespace: "shop"})
	redistest.Must(t, err)
	operator, err := admin.NewOperator(tr, admin.OperatorConfig{Client: root, Name: "alice"})
	redistest.Must(t, err)
	for _, role := range admin.Roles() {
		line, err := operator.ACL(t.Context(), role)
		redistest.Must(t, err)
		name := "minimal-" + string(role)
		args := []any{}
		for word := range strings.FieldsSeq(strings.Replace(line, ">PASSWORD", ">secret", 1)) {
			args = append(args, word)
		}
		args[2] = name
		redistest.Must(t, root.Do(t.Context(), args...).Err())
		reachesNothingElse(t, server, name)

		user := server.Client(t, func(o *redis.Options) { o.Username, o.Password = name, "secret" })
		// The consumer of a stream sends EVAL if the server has lost a script.
		if err := user.Do(t.Context(), "EVAL", "return 1", 0).Err(); role != admin.RoleService && !isDenied(err) {
			t.Errorf("%s may run EVAL: %v", name, err)
		}
	}
}

func TestDocumentedOperatorActsOnDeadLetters(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	root := server.Admin(t)
	lines, err := server.Binary().ACLLines()
	redistest.Must(t, err)
	for _, words := range lines {
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		redistest.Must(t, root.Do(t.Context(), args...).Err())
	}
	redistest.Must(t, root.Do(t.Context(), "ACL", "SETUSER", "operator", "~{mails}*").Err())
	giveUp(t, root, "{mails}", "g", "sold", 3)
	client := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "operator", "secret" })
	tr, err := luatx.New(client, luatx.Config{Namespace: "shop", Keyspace: luatx.Partitions(1)})
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	d := op.DeadLetters("{mails}")
	all := listed(t, d, admin.DeadLetterFilter{})
	redistest.Must(t, d.RecordRead(t.Context(), "by id", all[0]))
	var file bytes.Buffer
	_, err = d.Export(t.Context(), &file, admin.DeadLetterFilter{})
	redistest.Must(t, err)
	_, err = d.Discard(t.Context(), admin.DeadLetterFilter{IDs: []string{all[0].ID}}, "late", admin.DeadLetterOptions{})
	redistest.Must(t, err)
	r, err := d.Import(t.Context(), &file, "again", admin.ImportOptions{})
	if err != nil || r.Imported != 1 {
		t.Errorf("result = %+v, err = %v", r, err)
	}
	retried, err := d.Retry(t.Context(), admin.DeadLetterFilter{}, "repaired", admin.DeadLetterOptions{Canary: 1, CanaryWait: time.Millisecond})
	if err != nil || !retried.Stopped || retried.Done != 1 {
		t.Errorf("retried = %+v, err = %v", retried, err)
	}
}

func TestDocumentedUsersCannotReadSecretsOrReachForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, redistest.Own())
	redistest.Must(t, server.Admin(t).Set(t.Context(), "other:k", "theirs", 0).Err())
	lines, err := server.Binary().ACLLines()
	redistest.Must(t, err)
	users := map[string]bool{}
	for _, words := range lines {
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		redistest.Must(t, server.Admin(t).Do(t.Context(), args...).Err())
		users[words[2]] = true
	}
	if len(users) != 6 {
		t.Errorf("docs/acl.md has the users %v, want six", users)
	}
	for name := range users {
		reachesNothingElse(t, server, name)
	}
}

// exacting makes a script believe that the server has commands whose names are their numbers of words, and checks that number,
// as Redis 8.6 does.
const exacting = `local redis = {acl_check_cmd = function(...)
  local words = {...}
  for i = 2, #words do assert(words[i] == KEYS[1] or words[i] == 'sub', 'another key') end
  assert(#words == tonumber(words[1]), 'wrong number of arguments')
  return true
end}
`

func TestRightsAreReadFromAServerThatChecksTheNumberOfArguments(t *testing.T) {
	t.Parallel()
	commands := []any{"2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "2|sub", "3|sub", "4|sub", "unknown"}
	client := redistest.Shared(t).Client(t)
	denied, err := client.Eval(t.Context(), exacting+lua.Script("rights", nil), []string{redistest.Namespace(t)}, commands...).StringSlice()
	if err != nil || !slices.Equal(denied, []string{"1", "unknown"}) {
		t.Errorf("denied are %q, %v", denied, err)
	}
}
