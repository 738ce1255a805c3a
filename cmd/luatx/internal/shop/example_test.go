package shop

import (
	"fmt"
	"strings"
)

func ExampleRead() {
	file := strings.NewReader(`InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536365,85123A,"HEART, WHITE",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
536365,71053,LANTERN,6,2010-12-01 08:26:00,3.395,17850.0,United Kingdom
`)
	orders, problems, err := Read("orders.csv", file)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, order := range orders {
		fmt.Println("invoice", order.Invoice, "of customer", order.Customer, "costs", order.Total())
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	// Output:
	// invoice 536365 of customer 17850 costs 15.30
	// orders.csv:3: price "3.395" has more than two decimals
}
