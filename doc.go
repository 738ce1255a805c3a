// Package luatx commits what a message handler does in Redis as one script on one hash slot: the check that the
// message is new, the business writes, the events to publish and the acknowledgement of the input either all
// happen or none does, in one round trip, on a single server and on Redis Cluster alike.
//
// A Transactor runs transactions; Middleware puts one around each handler of a message.Router. Inside,
// adapters issue their commands on CmdableFromContext, which records them; handlers need not know Redis.
// Package inbox makes a message count once, package outbox turns a handler's outputs into events, package
// relay publishes those, package stack assembles all of it from one config. Transact is the same without a
// message.
//
// # What is promised
//
// The effect of an id is there once, within the retention of the inbox. A transaction is whole or absent, also
// after a command in it failed (everything before it is undone) and after a failover that lost it. Events are
// published at least once, with stable ids.
//
// A handler may run more than once; only one of its runs counts. Nothing is atomic across slots: emit an event
// for the other aggregate instead.
package luatx
