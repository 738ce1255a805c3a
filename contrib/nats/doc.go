// Package nats connects luatx with NATS JetStream. It provides a Publisher for a relay, whose message ids let a stream drop
// duplicates, and a Subscriber that passes the messages of a durable consumer to a router.
package nats
