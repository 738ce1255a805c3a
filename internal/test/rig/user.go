package rig

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
)

// NewUser starts a server and creates a user that has the rights on every key. It returns a client logged in as that user
// and one logged in as the administrator.
func NewUser(t testing.TB, rights ...string) (client, admin *redis.Client) {
	t.Helper()
	server := redistest.Single(t, redistest.Own())
	admin = server.Admin(t)
	Grant(t, admin, append([]string{"on", ">secret", "~*"}, rights...)...)
	client = server.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	return client, admin
}

// Grant changes the rights of NewUser's user.
func Grant(t testing.TB, admin *redis.Client, rules ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	redistest.Must(t, admin.Do(t.Context(), args...).Err())
}
