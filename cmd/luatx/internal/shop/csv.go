package shop

import (
	"errors"
	"fmt"
	"strings"
)

const csvHeader = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"

// The columns that are read, and the total number of columns.
const (
	colInvoice  = 0
	colStock    = 1
	colQuantity = 3
	colPrice    = 5
	colCustomer = 6
	columns     = 8
)

func isHeader(line []byte) bool {
	fields, err := splitCSV(string(line))
	return err == nil && strings.Join(fields, ",") == csvHeader
}

// addRecord adds one line of CSV to its invoice. It copies the parts that it keeps, because a substring would keep the
// whole line alive.
func (c *collector) addRecord(text []byte) error {
	fields, err := splitCSV(string(text))
	if err != nil {
		return err
	}
	if len(fields) != columns {
		return fmt.Errorf("has %d fields, not %d", len(fields), columns)
	}
	invoice := fields[colInvoice]
	if err := checkName("invoice", invoice); err != nil {
		return err
	}
	customer, err := parseCustomer(fields[colCustomer])
	if err != nil {
		return err
	}
	line, err := parseLine(fields[colStock], fields[colQuantity], fields[colPrice])
	if err != nil {
		return err
	}
	at, known := c.index[invoice]
	if known && c.orders[at].Customer != customer {
		return fmt.Errorf("invoice %s belongs to customer %s, but this line has customer %s", invoice, c.orders[at].Customer, customer)
	}
	if err := c.turnover.add(line); err != nil {
		return err
	}
	if !known {
		at, invoice = len(c.orders), strings.Clone(invoice)
		c.index[invoice] = at
		c.orders = append(c.orders, Order{Invoice: invoice, Customer: strings.Clone(customer)})
	}
	line.Stock = strings.Clone(line.Stock)
	c.orders[at].Lines = append(c.orders[at].Lines, line)
	return nil
}

// splitCSV returns the fields of one line. A field that begins with a quote ends with one, and contains doubled quotes for
// its own. Elsewhere a quote is an ordinary character.
func splitCSV(line string) ([]string, error) {
	fields := make([]string, 0, columns)
	for more := true; more; {
		var field string
		if strings.HasPrefix(line, `"`) {
			end := closingQuote(line)
			if end < 0 {
				return nil, errors.New("has an unclosed quote")
			}
			field, line = strings.ReplaceAll(line[1:end], `""`, `"`), line[end+1:]
			if line != "" && line[0] != ',' {
				return nil, errors.New("has text after a closing quote")
			}
			line, more = strings.CutPrefix(line, ",")
		} else {
			field, line, more = strings.Cut(line, ",")
		}
		fields = append(fields, field)
	}
	return fields, nil
}

// closingQuote returns the index of the quote that closes the first one, or -1.
func closingQuote(line string) int {
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		if i+1 == len(line) || line[i+1] != '"' {
			return i
		}
		i++
	}
	return -1
}
