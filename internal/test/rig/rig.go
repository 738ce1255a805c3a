// Package rig holds what the tests of several rooms share: Transactors, inputs, proxies, and commands as text.
package rig

import (
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// ScriptSHA returns the SHA-1 of a script, in hexadecimal.
func ScriptSHA(t testing.TB, tr *luatx.Transactor, name string) string {
	t.Helper()
	for script, sha := range link.Of(tr).Runner.SHAs() {
		if script == name {
			return sha
		}
	}
	t.Fatal("no script " + name)
	return ""
}

// NewTransactor returns a Transactor whose namespace and keys belong to the test alone. It has checked the server, so
// that a test which counts requests sees commits only.
func NewTransactor(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
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

// Key returns a key of an aggregate.
func Key(t testing.TB, tr *luatx.Transactor, aggregate string, parts ...string) string {
	t.Helper()
	k, err := tr.Keyspace().Key(aggregate, parts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Warm commits a transaction without effects, which loads the scripts.
func Warm(t testing.TB, tr *luatx.Transactor) {
	t.Helper()
	if _, err := tr.Transact(t.Context(), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("warm")); err != nil {
		t.Fatal(err)
	}
}
