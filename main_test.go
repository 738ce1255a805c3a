package luatx_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newTransactor returns a Transactor under a namespace of its own, checked, so that what a test counts on the
// wire are commits; keys with the prefix of its keyspace are the test's own too.
func newTransactor(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
	t.Helper()
	namespace := redistest.Namespace(t)
	cfg := luatx.Config{
		Namespace: namespace,
		Keyspace:  luatx.OwnTags().WithPrefix(namespace),
	}
	for _, c := range change {
		c(&cfg)
	}
	tr, err := luatx.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

// dump returns the state of a Transactor's namespace.
func dump(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, tr.Config().Namespace+"*")
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func noTrace(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, before redistest.State) {
	t.Helper()
	if diff := redistest.Diff(before, dump(t, client, tr)); diff != "" {
		t.Errorf("left a trace:\n%s", diff)
	}
}

// newUser starts a server and returns a client logged in as a user with the rights, on every key, and one of the
// administrator's.
func newUser(t testing.TB, rights ...string) (client, admin *redis.Client) {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	admin = server.Admin(t)
	grant(t, admin, append([]string{"on", ">secret", "~*"}, rights...)...)
	client = server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	return client, admin
}

// grant changes the rights of newUser's user.
func grant(t testing.TB, admin *redis.Client, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// key returns a key of an aggregate.
func key(t testing.TB, tr *luatx.Transactor, aggregate string, parts ...string) string {
	t.Helper()
	k, err := tr.Keyspace().Key(aggregate, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
