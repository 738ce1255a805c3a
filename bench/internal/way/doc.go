// Package way measures messages from end to end: read from a queue, handled with business writes, acknowledged, and their events
// published. A round adds the messages, and then measures the time until the server reports that all of them are done.
//
// Every way does the same for each message: it checks an id that is kept for 24 hours, sets three fields with HSET, runs INCR, adds
// one event of the cell's payload, and acknowledges the message. The ways differ in their guarantees:
//
//   - The pipeline mode, the peers and the plain loops may lose or repeat an effect when a process dies between two steps.
//   - luatx commits everything in one step, and its relay settles each event that it has published.
package way
