// Package shop is the domain of the demo: invoices are booked on their customers' slots, the lines sold travel as events to
// their products' slots, and money and stock must come out exact however often a worker is killed.
//
// The package knows neither Redis nor processes. It reads orders (CSV, JSON lines, or made from a seed), turns them into
// messages, holds the two handlers behind the port [Books], computes from the input alone what the books must say, and
// reports how far a run was from it.
package shop
