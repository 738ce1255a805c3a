package setup

import (
	"context"
	"crypto/tls"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/trigger"
)

var (
	tlsConfig *tls.Config
	r         = trigger.New(trigger.Config{})
	cfg       trigger.Config
	handler   = message.NewCommandHandler(func(context.Context, struct{ ID string }) ([]struct{}, error) { return nil, nil }, message.CommandHandlerConfig{Source: "/books"})
)
