package setup

import "github.com/luatx/luatx/message"

var router *message.Router
