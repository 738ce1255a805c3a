package setup

import (
	"context"

	"github.com/luatx/luatx/message"
)

var router *message.Router
