package setup

import "github.com/luatx/luatx/message"

var (
	engine = message.NewEngine(message.EngineConfig{})
	url    string
)
