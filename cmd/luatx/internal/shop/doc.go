// Package shop is the domain of the demo. Invoices are booked in their customers' slots, and the sold lines travel as
// events to their products' slots. Money and stock must be exact, however often a worker is killed.
//
// The package depends neither on Redis nor on processes. It reads orders from CSV or JSON lines, or generates them from a
// seed. It converts them to messages, contains the two handlers behind the port [Books], computes the expected books from
// the input alone, and reports how far a run was from them.
package shop
