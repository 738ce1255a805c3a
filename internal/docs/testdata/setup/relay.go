package setup

import (
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

var publisher relay.Publisher

func prepare() {
	p, err := stream.NewPublisher(client, stream.PublisherConfig{Stream: "events"})
	must_(err)
	publisher = relay.Streams(p)
}
