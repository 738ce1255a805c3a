// Package expiry decides what happens when a time has come: a ticket expires, an order was not paid, a reservation lapses. A
// subject has a timer. When the timer is due, one event is added to the outbox, unless the timer was revoked before.
//
// The timers of a slot are members of a sorted set. They do not use the expiry of keys, because Redis notifies only connected
// listeners of an expired key, late and at most once. A decision is one script, which also reads the revocation. If an expiry and
// a revocation race, exactly one of them takes place, with its event. Config.EventID derives the id of the event from the subject
// and the time, so every worker and every retry creates the same event.
//
// Store has the operations and Worker runs them. Any number of workers may run at the same time.
package expiry
