// Package stream reads and writes messages on Redis Streams. It provides a Subscriber for consumer groups, a Publisher, and
// the CloudEvents formats of their entries. It supports Redis 6.0 and later, Valkey, and Redis Cluster.
//
// # Reading
//
// A Subscriber delivers each entry of one stream at least once, as a message, and keeps at most
// SubscriberConfig.MaxInFlight messages in flight. Acking a message sends XACK. The same subscriber delivers a nacked
// message again after a backoff, or after the delay that its error requests (message.RetryAfter).
//
// A subscriber sends a heartbeat for every message in flight, so that a slow handler keeps its message. If an entry gets no
// heartbeat for MaxIdleTime, its consumer is considered dead, and another consumer claims the entry. A consumer that has
// lost an entry cannot give it back, and its commit of the message is fenced.
//
// # Dead letters
//
// With SubscriberConfig.MaxDeliveries, an entry becomes a dead letter after that number of deliveries, over all processes.
// Messages that fail with message.Permanent or cannot be decoded become dead letters at once. One script writes the entry
// to the dead-letter stream, with the reason and its history, and acknowledges it in its own stream. DeadLetters lists dead
// letters; PutBack and PutBackAll move them back. Without a dead-letter stream, a message that fails with message.Permanent
// stays pending: the subscriber logs it and delivers it again after MaxIdleTime at the earliest.
//
// A Subscriber survives every failure of the server: lost connections and replies, restarts, failovers, a deleted group.
// Consumers of crashed processes are removed when nothing is pending for them.
//
// # Partitions
//
// A PartitionedSubscriber reads one logical stream that consists of one stream for each tag of a luatx.Keyspace. A
// Publisher made by NewPartitionedPublisher writes it by aggregate. The members of a group share the partitions by leases,
// and each partition is read in order.
//
// # Writing
//
// A Publisher writes at least once. If the reply to a write is lost, the client sends the write again, and readers see the
// message twice with the same id. A message without an id gets one before its first write. On Redis 8.6 and later, a stream
// contains a message of a known producer, such as an event of a relay, once within PublisherConfig.IdempotencyWindow.
//
// # Entries
//
// The default format is Binary: each attribute is a field with the prefix ce_, the content type is in content-type, and the
// data in data. Structured puts a whole CloudEvent as JSON into data. Unmarshal reads both, and also entries that are not
// CloudEvents. A message without an id gets the id of its entry, and one without a source gets the stream's key, so that
// every entry has an identity that redelivery does not change.
package stream
