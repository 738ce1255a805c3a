// Package kafka connects luatx with Apache Kafka through franz-go. It provides a Publisher for a relay, with an idempotent
// producer, and a Subscriber that passes the records of a consumer group to a router and commits the offsets of acked records.
package kafka
