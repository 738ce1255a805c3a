package setup

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stack"
)

type (
	PlaceOrder  struct{ ID string }
	OrderPlaced struct{ ID string }
)

var (
	env    *luatxtest.Env
	router *message.Router
	order  = PlaceOrder{"17"}
)

func prepare() {
	env = luatxtest.New(t, func(c *luatxtest.Config) { c.Transactor.Keyspace = luatx.Partitions(4) })
	router = service(env.Transactor, env.Client)
}

func service(tr *luatx.Transactor, client redis.UniversalClient) *message.Router {
	mw, err := stack.Scripted(tr, stack.Config{})
	must_(err)
	r := message.NewRouter(message.PipeConfig{})
	must_(r.Use(mw))
	must_(r.AddHandler("place-order", nil, message.NewCommandHandler(func(_ context.Context, cmd PlaceOrder) ([]OrderPlaced, error) {
		return []OrderPlaced{{cmd.ID}}, nil
	}, message.CommandHandlerConfig{Source: "/orders"})))
	return r
}

func deliver(ctx context.Context, router *message.Router, cmd PlaceOrder) error {
	_, err := router.Process(ctx, message.New(cmd, message.Attributes{"id": "m-" + cmd.ID, "source": "/web", "type": "place.order", "subject": cmd.ID}, nil))
	return err
}

type broker struct{ URL string }

func startBroker(testing.TB) broker            { return broker{} }
func NewMyPublisher(string) relay.Publisher    { return nil }
func (broker) Received() []*message.RawMessage { return nil }
func (broker) Stop() (mend func())             { return nil }
func (broker) Refuse(string)                   {}
