package shop

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
)

// Expected holds the exact books, computed from the orders alone.
type Expected struct {
	Messages    int    `json:"messages"` // number of invoices
	SpentSHA256 string `json:"spent_sha256"`
	StockSHA256 string `json:"stock_sha256"`

	Events int              `json:"-"` // number of sold lines
	Spent  map[string]int64 `json:"-"` // pence by customer
	Stock  map[string]int64 `json:"-"` // net units taken by stock code

	lines map[string]map[string]int64 // number of lines by invoice and SoldKey
}

// Written is the content of the store after a run.
type Written struct {
	Spent   map[string]int64 // pence by customer
	Stock   map[string]int64 // net units taken by stock code
	Applied map[string]int64 // number of times by invoice
	Sold    map[string]int64 // events that reached the stock, by SoldKey
}

// SoldKey returns a key for the lines of an invoice that sell the same product.
func SoldKey(invoice, code string) string { return invoice + "\t" + code }

// Expect computes the books of the orders.
func Expect(orders []Order) Expected {
	e := Expected{
		Messages: len(orders),
		Spent:    map[string]int64{}, Stock: map[string]int64{}, lines: map[string]map[string]int64{},
	}
	for _, order := range orders {
		e.Events += len(order.Lines)
		e.Spent[order.Customer] += int64(order.Total())
		lines := make(map[string]int64, len(order.Lines))
		for _, line := range order.Lines {
			e.Stock[line.Stock] += line.Units
			lines[SoldKey(order.Invoice, line.Stock)]++
		}
		e.lines[order.Invoice] = lines
	}
	e.SpentSHA256, e.StockSHA256 = Digest(e.Spent), Digest(e.Stock)
	return e
}

// Digest returns the SHA-256, in hexadecimal, of the lines "name<tab>total<newline>", sorted by the bytes of the name and
// including totals of zero.
func Digest(totals map[string]int64) string {
	hash := sha256.New()
	var line []byte
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		line = append(append(line[:0], name...), '\t')
		line = append(strconv.AppendInt(line, totals[name], 10), '\n')
		hash.Write(line)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Off returns the sum of the absolute differences between two books. A missing name counts as zero.
func Off(want, got map[string]int64) int64 {
	var off int64
	for name, total := range want {
		off += abs(total - got[name])
	}
	for name, total := range got {
		if _, known := want[name]; !known {
			off += abs(total)
		}
	}
	return off
}

// Compare sets the fields of a result about the books: how often each invoice was applied, how many events of the applied
// ones are missing, how far the totals are off, and their digests.
func (e Expected) Compare(r *Result, w Written) {
	r.Applied, r.Doubled, r.EventsLost = 0, 0, 0
	for invoice, lines := range e.lines {
		times := w.Applied[invoice]
		if times == 0 {
			continue
		}
		r.Applied++
		if times > 1 {
			r.Doubled++
		}
		for key, n := range lines {
			r.EventsLost += int(max(0, n-w.Sold[key]))
		}
	}
	r.Lost = e.Messages - r.Applied
	r.MoneyOffPence, r.StockOff = Off(e.Spent, w.Spent), Off(e.Stock, w.Stock)
	r.SpentSHA256, r.StockSHA256 = Digest(w.Spent), Digest(w.Stock)
}

// Exact reports whether a run kept the books exactly: each message was applied once, no event was lost, and all totals are
// right.
func (e Expected) Exact(r Result) bool {
	return r.Messages == e.Messages && r.Applied == e.Messages &&
		r.Lost == 0 && r.Doubled == 0 && r.EventsLost == 0 &&
		r.MoneyOffPence == 0 && r.StockOff == 0 &&
		r.SpentSHA256 == e.SpentSHA256 && r.StockSHA256 == e.StockSHA256
}
