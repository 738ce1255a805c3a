// Package stream reads and writes messages on Redis Streams: a Subscriber of a consumer group, a Publisher, and the
// CloudEvents formats of their entries. It runs on Redis 6.0 and later, Valkey, and Redis Cluster.
//
// # Reading
//
// A Subscriber gives out the entries of one stream as messages, at least once each, and never more at a time than
// SubscriberConfig.MaxInFlight. Acking a message is XACK. A nacked one is given out again by the same subscriber after a
// backoff, or as its error asks (message.RetryAfter).
//
// A subscriber shows that it lives by a heartbeat for every message in flight, so that a slow handler keeps its message.
// Entries of which nothing was heard for MaxIdleTime are claimed by another consumer: theirs died. A consumer that lost
// an entry like that does not claim it back, and its commit is fenced.
//
// # Dead letters
//
// With SubscriberConfig.MaxDeliveries an entry that was delivered so many times, by whichever processes, goes to the
// dead-letter stream. So does an entry that is rejected for good (message.Permanent) or cannot be decoded. One script
// writes it there, with the reason and its history, and acknowledges it here. DeadLetters lists them, PutBack and
// PutBackAll send them round again. Without dead letters, an entry that is rejected for good stays pending. It is
// logged, and delivered again after MaxIdleTime at the earliest.
//
// A Subscriber survives whatever the server does: lost connections and replies, restarts, failovers, a deleted group.
// Consumers of processes that died are removed when nothing is pending for them any more.
//
// # Partitions
//
// A PartitionedSubscriber reads one logical stream that is a stream for each tag of a luatx.Keyspace, which a
// Publisher of NewPartitionedPublisher writes by aggregate. The members of a group share the partitions by leases, and
// each partition is read in order.
//
// # Writing
//
// A Publisher writes at least once: where the reply to a write is lost, the write is sent again, and readers see the
// message twice with one id. A message without id gets one before its first write. From Redis 8.6 on a stream has a message of
// a known producer, such as an event of a relay, once within PublisherConfig.IdempotencyWindow.
//
// # Entries
//
// Binary is the format by default: each attribute a field with the prefix ce_, the content type in content-type, the
// data in data. Structured puts a whole CloudEvent as JSON into data. Unmarshal reads both, and entries that know
// nothing of CloudEvents as well. A message without an id gets the id of its entry, and one without a source gets the
// stream's key, so that every entry has an identity that does not change with redelivery.
package stream
