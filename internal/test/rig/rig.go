// Package rig holds what the tests of several rooms share: Transactors, inputs, proxies, and commands as text.
package rig

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/test/redistest"
)

// ScriptSHA returns the SHA-1 of a script, in hexadecimal.
func ScriptSHA(t testing.TB, tr *luatx.Transactor, name string) string {
	t.Helper()
	for script, sha := range link.Of(tr).Runner.SHAs() {
		if script == name {
			return sha
		}
	}
	t.Fatal("unknown script " + name)
	return ""
}

// NewUnchecked returns a Transactor that has not checked its server yet. Its namespace and keys belong to the test alone.
func NewUnchecked(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
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
	redistest.Must(t, err)
	return tr
}

// NewTransactor is NewUnchecked, and checks the server, so that a test which counts requests sees commits only.
func NewTransactor(t testing.TB, client redis.UniversalClient, change ...func(*luatx.Config)) *luatx.Transactor {
	t.Helper()
	tr := NewUnchecked(t, client, change...)
	redistest.Must(t, tr.Check(t.Context()))
	return tr
}

// Key returns a key of an aggregate.
func Key(t testing.TB, tr *luatx.Transactor, aggregate string, parts ...string) string {
	t.Helper()
	k, err := tr.Keyspace().Key(aggregate, parts...)
	redistest.Must(t, err)
	return k
}

// Warm commits a transaction without effects, which loads the scripts.
func Warm(t testing.TB, tr *luatx.Transactor) {
	t.Helper()
	if _, err := tr.Transact(t.Context(), "a", func(*luatx.Tx) error { return nil }, luatx.WithID("warm")); err != nil {
		t.Fatal(err)
	}
}

// NoError fails the test unless every error is nil, and goes on.
func NoError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Dump returns the state of a Transactor's namespace.
func Dump(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor) redistest.State {
	t.Helper()
	state, err := redistest.Dump(t.Context(), client, tr.Config().Namespace+"*")
	redistest.Must(t, err)
	return state
}

// NoTrace fails the test if the state differs from before.
func NoTrace(t testing.TB, client redis.UniversalClient, tr *luatx.Transactor, before redistest.State) {
	t.Helper()
	if diff := redistest.Diff(before, Dump(t, client, tr)); diff != "" {
		t.Errorf("data was left behind:\n%s", diff)
	}
}
