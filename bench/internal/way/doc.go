// Package way measures messages on their whole way: read from a queue, handled with business writes, acknowledged, and
// their events published. A round feeds a way with messages, without measuring that, and then times it until all of
// them are through, which the server is asked for.
//
// Every message means the same to each way: a check whether its id is known, kept for 24 hours, HSET of three fields,
// INCR, one event of the cell's payload, and the acknowledgement. The ways differ in the rest of their
// work:
//
//   - three-step and the peers may lose or repeat an effect when a process dies in between; so may plain loops;
//   - luatx commits all of it at once, and its relay settles each event that it has published.
package way
