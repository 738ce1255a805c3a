// Package kafka joins luatx and Apache Kafka, through franz-go: a Publisher for a relay, with an idempotent producer, and a
// Subscriber that gives a consumer group's records to a router and commits their offsets behind what was acked.
package kafka
