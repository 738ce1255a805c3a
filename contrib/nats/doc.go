// Package nats joins luatx and NATS JetStream: a Publisher for a relay, whose message ids let a stream drop what is
// published twice, and a Subscriber that gives a durable consumer's messages to a router.
package nats
