package setup

import (
	natsio "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/luatx/luatx/message"
)

var (
	connection *natsio.Conn
	js         jetstream.JetStream
	engine     = message.NewEngine(message.EngineConfig{})
)
