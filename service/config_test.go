package service

import (
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stack"
	"github.com/luatx/luatx/stream"
)

func TestConfigHasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, Config{}.withDefaults())
	documented.Defaults(t, Subscription{}.withDefaults())
}

func TestConfigErrorNamesTheWrongField(t *testing.T) {
	t.Parallel()
	mw := message.Middleware{}
	for want, cfg := range map[string]Config{
		"Config.Mode is 3":                  {Namespace: "a", Stream: "s", Mode: 3},
		"Config.Namespace is empty":         {Stream: "s"},
		"Config.Stream is empty":            {Namespace: "a"},
		"Config.Partitions is -1":           {Namespace: "a", Stream: "s", Partitions: -1},
		"Config.ShutdownTimeout is 1ms":     {Namespace: "a", Stream: "s", ShutdownTimeout: 1e6},
		"Subscriber.ShutdownTimeout and Re": {Namespace: "a", Stream: "s", Subscriber: stream.PartitionedConfig{SubscriberConfig: stream.SubscriberConfig{ShutdownTimeout: 20e9}}},
		"Config.Given.Middleware is nil":    {Stream: "s", Mode: Other},
		"Config.Given.Relay is nil":         {Stream: "s", Mode: Other, Given: Given{Middleware: &mw}},
		"Config.Partitions is 2, and the":   {Namespace: "a", Stream: "s", Partitions: 2, Transactor: luatx.Config{Keyspace: luatx.Partitions(3)}},
		"need mode Scripted":                {Namespace: "a", Stream: "s", Mode: Pipelined, Timers: timers(nil)},
		"Config.Stack.OutboxStreamFor is s": {Namespace: "a", Stream: "s", Mode: Pipelined, Stack: stack.Config{OutboxStreamFor: func(*message.Message) (string, error) { return "", nil }}},
	} {
		_, err := New(offline(t), cfg, Command("h", nothing))
		assert.ErrorContains(t, err, want, "New")
	}
	_, err := New(nil, Config{Namespace: "a", Stream: "s"}, Command("h", nothing))
	assert.ErrorContains(t, err, "needs a client", "New without a client")
	_, err = New(offline(t), Config{Namespace: "a", Stream: "s"})
	assert.ErrorContains(t, err, "needs a handler", "New without a handler")
	_, err = New(offline(t), Config{Namespace: "a", Stream: "s"}, Command("h", nothing), Command("h", nothing))
	assert.ErrorContains(t, err, `handler "h"`, "New with a name twice")
}

func TestGivenTransactorMustHaveTheNamespace(t *testing.T) {
	t.Parallel()
	transactor, err := luatx.New(offline(t), luatx.Config{Namespace: "b"})
	assert.Must(t, err)
	_, err = New(offline(t), Config{Namespace: "a", Stream: "s", Given: Given{Transactor: transactor}}, Command("h", nothing))
	assert.ErrorContains(t, err, `that of Given.Transactor is "b"`, "New")
	s, err := New(offline(t), Config{Stream: "s", Given: Given{Transactor: transactor}}, Command("h", nothing))
	assert.Must(t, err)
	if s.Transactor() != transactor || s.cfg.Group != "b" {
		t.Errorf("the service has another Transactor, or the group %q", s.cfg.Group)
	}
}
