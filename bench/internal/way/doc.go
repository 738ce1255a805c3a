// Package way measures messages from end to end: reading from a queue, handling with business writes, acknowledging, and
// publishing their events. A round first feeds a way with messages, which is not measured. Then it measures the time until
// the server shows that all of them are through.
//
// Every way does the same for each message: it checks whether its id is a duplicate, with ids kept for 24 hours, runs HSET
// of three fields and INCR, creates one event with the cell's payload, and acknowledges the message. The ways differ in
// their guarantees:
//
//   - pipeline mode, the peers and plain loops may lose or repeat an effect when a process crashes in between;
//   - luatx commits all of it atomically, and its relay settles each event that it has published.
package way
