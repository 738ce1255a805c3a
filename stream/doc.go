// Package stream reads and writes messages on Redis Streams: a Subscriber of a consumer group, a Publisher, and the
// CloudEvents formats of their entries. It runs on Redis 6.0 and later, Valkey, and Redis Cluster.
//
// # Reading
//
// A Subscriber gives out the entries of one stream as messages, at least once each, and never more at a time than
// SubscriberConfig.MaxInFlight. Acking a message is XACK. A nacked one is given out again by the same subscriber after a
// backoff, or as its error asks (message.RetryAfter). One whose error is permanent (message.Permanent), and an entry
// that cannot be decoded, stay pending: they are logged, and given out again no sooner than MaxIdleTime after.
//
// Entries that another consumer holds for MaxIdleTime without acking are claimed from it: it died, or it hangs.
// MaxIdleTime must therefore exceed the time that the slowest handler takes, waiting for a free worker included.
// Otherwise two consumers work on the same message, and all but one of them have lost it.
//
// A Subscriber survives whatever the server does: lost connections and replies, restarts, failovers, a deleted group.
//
// # Writing
//
// A Publisher writes at least once: where the reply to a write is lost, the write is sent again, and readers see the
// message twice with one id. A message without id gets one before its first write.
//
// # Entries
//
// Binary is the format by default: each attribute a field with the prefix ce_, the content type in content-type, the
// data in data. Structured puts a whole CloudEvent as JSON into data. Unmarshal reads both, and entries that know
// nothing of CloudEvents as well. Whatever has no id gets the id of its entry, and what has no source the stream's key,
// so that every entry has an identity that does not change with redelivery.
package stream
