// Package amqp connects luatx with RabbitMQ. It provides a [Publisher] for relays, with publisher confirms, and a [Subscriber]
// that passes the messages of a queue to a router. Both use AMQP 0-9-1 through github.com/rabbitmq/amqp091-go, and reconnect
// themselves.
package amqp
