package setup

import "github.com/luatx/luatx/message"

var router = message.NewRouter(message.PipeConfig{})
