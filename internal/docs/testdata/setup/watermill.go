package setup

import "github.com/ThreeDotsLabs/watermill/message"

var (
	router         *message.Router
	subscriber     message.Subscriber
	publisher      message.Publisher
	kafkaPublisher message.Publisher
	placeOrder     message.HandlerFunc
)
