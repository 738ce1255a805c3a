package setup

import (
	"context"
	"database/sql"

	"github.com/luatx/luatx/stream"
)

type (
	PlaceOrder  struct{ Product string }
	OrderPlaced struct{ Product string }
	Reserve     struct{ Seat string }
)

func placeOrder(context.Context, PlaceOrder) ([]OrderPlaced, error) { return nil, nil }

func reserve(context.Context, Reserve) ([]any, error) { return nil, nil }

var (
	db        *sql.DB
	publisher *stream.Publisher
)
