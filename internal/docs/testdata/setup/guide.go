package setup

import (
	"context"
	"database/sql"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/sqltx"
	"github.com/luatx/luatx/stream"
)

type (
	PlaceOrder  struct{ ID, Product string }
	OrderPlaced struct{ ID string }
	Orders      interface {
		Save(ctx context.Context, o PlaceOrder) error
	}
	RedisOrders struct {
		client redis.UniversalClient
		keys   luatx.Keyspace
	}
)

var (
	ErrSoldOut = errors.New("sold out")
	db         *sql.DB
	router     *message.Router
	inbox      sqltx.InboxConfig
	outbox     sqltx.OutboxConfig
	publisher  *stream.Publisher
)
