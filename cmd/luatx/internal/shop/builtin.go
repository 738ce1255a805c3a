package shop

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// The size of the built-in shop.
const (
	builtInInvoices  = 300
	builtInProducts  = 60
	builtInCustomers = 40
)

// BuiltIn returns 300 orders that depend only on the seed. The invoices have one to eight lines over sixty products, for
// forty customers and guests. Some lines of an invoice are equal, and some invoices cancel earlier ones.
func BuiltIn(seed uint64) []Order {
	r := rand.New(rand.NewPCG(seed, 0x73686f70))
	products := builtInRange(r)
	orders := make([]Order, 0, builtInInvoices)
	for i := range builtInInvoices {
		if i > 20 && r.IntN(25) == 0 {
			orders = append(orders, cancellation(i, orders[r.IntN(i)]))
			continue
		}
		orders = append(orders, sale(r, i, products))
	}
	return orders
}

// builtInRange returns the products, as a line of one unit each. Some codes differ only in case.
func builtInRange(r *rand.Rand) []Line {
	products := make([]Line, builtInProducts)
	for i := range products {
		code := strconv.Itoa(22000 + i)
		switch i % 10 {
		case 8:
			code = strconv.Itoa(85000+i) + "B"
		case 9:
			code = strconv.Itoa(85000+i-1) + "b"
		}
		products[i] = Line{Stock: code, Units: 1, Price: Pence(25 + r.IntN(1500))}
	}
	return products
}

func sale(r *rand.Rand, i int, products []Line) Order {
	order := Order{Invoice: strconv.Itoa(536000 + i), Customer: Guest}
	if r.IntN(6) > 0 {
		order.Customer = strconv.Itoa(12300 + r.IntN(builtInCustomers))
	}
	for range 1 + r.IntN(8) {
		line := products[r.IntN(len(products))]
		line.Units = int64(1 + r.IntN(24))
		if n := len(order.Lines); n > 0 && r.IntN(10) == 0 {
			line = order.Lines[n-1] // an equal line
		}
		order.Lines = append(order.Lines, line)
	}
	return order
}

// cancellation returns an order that cancels another order or cancellation.
func cancellation(i int, of Order) Order {
	order := Order{Invoice: fmt.Sprintf("C%d", 536000+i), Customer: of.Customer, Lines: make([]Line, len(of.Lines))}
	for n, line := range of.Lines {
		line.Units = -line.Units
		order.Lines[n] = line
	}
	return order
}
