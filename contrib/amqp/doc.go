// Package amqp joins luatx and RabbitMQ: a [Publisher] for relays, with publisher confirms, and a [Subscriber] that gives
// the messages of a queue to a router. Both speak AMQP 0-9-1 through github.com/rabbitmq/amqp091-go and connect again by
// themselves.
package amqp
