// Package shop is the domain of the demo: invoices are booked on their customers' slots, the lines sold travel as events to
// their products' slots, and money and stock must come out exact however often a worker is killed.
//
// The package knows neither Redis nor processes. It reads orders (CSV or JSON lines) or makes them from a seed, and
// turns them into messages. It has the two handlers behind the port [Books]. It computes the correct books from the
// input alone, and reports how far a run was from them.
package shop
