package setup

import (
	"database/sql"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

var (
	db        *sql.DB
	orders    any
	publisher *stream.Publisher
)

func NewPlaceOrder(any) message.Handler { return nil }
