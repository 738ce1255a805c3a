package setup

import (
	"context"

	"github.com/luatx/luatx/message"
)

func process(context.Context, *message.RawMessage) error { return nil }
