// Package expiry decides what happens when a time has come: a ticket expires, an order was not paid, a reservation lapses.
// A subject has a timer; when it is due, one event enters the outbox, unless the timer was revoked before.
//
// The timers of a subject's slot are a sorted set of their own, not the expiry of keys: that a key has expired is told
// late, at most once, and to nobody who was not listening. A decision is one script, which reads the revocation itself,
// so that of an expiry and a revocation that race exactly one takes place, with its event. The event's id is
// derived from the subject and the time by Config.EventID, so every worker and every retry makes the same event.
//
// Store has the operations, Worker runs them. Any number of workers may run side by side.
package expiry
