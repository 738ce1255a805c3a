// Package luatx commits everything that a message handler does in Redis as one script on one hash slot: the inbox check,
// the business writes, the events and the acknowledgement of the input. All of it takes effect, or none of it. Package stack
// assembles the middlewares; docs/guarantees.md lists the guarantees and their limits.
package luatx
