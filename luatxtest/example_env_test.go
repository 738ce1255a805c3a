package luatxtest_test

import (
	"testing"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/luatxtest"
)

// The body of a test: a process of the service dies, the next one continues, and a month passes.
func ExampleEnv() { //nolint:testableexamples // what it shows runs in a test: see TestOrderIsPlacedOnceDespiteACrash and TestReminderIsSentWhenItIsDue
	t := new(testing.T) // the parameter of the test

	env := luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
	place := func(env *luatxtest.Env) error {
		_, err := env.Transact(env.Context(), "order-17", func(tx *luatx.Tx) error {
			return tx.Emit(luatx.Event{ID: "placed-17", Body: []byte(`{"specversion":"1.0","id":"placed-17","source":"/orders","type":"order.placed"}`)})
		}, luatx.WithID("place-17"))
		return err
	}
	env.Crash(luatxtest.AfterCommit)
	if err := place(env); err == nil {
		t.Error("the process lives")
	}
	env = env.Restart() // the next process, on the same Redis
	if err := place(env); err != nil {
		t.Error(err)
	}
	luatxtest.RequireEmitted(t, env.Transactor, luatxtest.Want{Type: "order.placed"})
	env.Advance(30 * 24 * time.Hour) // the clock of Redis
}
