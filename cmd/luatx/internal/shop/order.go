package shop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Guest is the customer of every invoice without one.
const Guest = "guest"

// maxName bounds invoice numbers, customers and stock codes, in bytes. They become aggregate ids, which must fit into 256
// bytes even when percent-encoded.
const maxName = 64

// Order is one invoice. A cancellation is an order with negative units.
type Order struct {
	Invoice  string `json:"invoice"`
	Customer string `json:"customer"`
	Lines    []Line `json:"lines"`
}

// Line is one line of an invoice. Units may be negative (returns), and the price of a unit may be zero or negative
// (adjustments). Equal lines are separate sales.
type Line struct {
	Stock string `json:"stock"`
	Units int64  `json:"quantity"`
	Price Pence  `json:"price"`
}

// Total returns the price of the order in pence.
func (o Order) Total() Pence {
	var total Pence
	for _, line := range o.Lines {
		total += Pence(line.Units) * line.Price
	}
	return total
}

// UnmarshalJSON decodes {"invoice", "customer", "lines": [{"stock", "quantity", "price"}]} as strictly as the readers do.
// Every field of a line is required, and numbers are parsed from their decimal text. A customer may be a string, a whole
// number, or null, empty or missing for a guest.
func (o *Order) UnmarshalJSON(data []byte) error {
	var in struct {
		Invoice  scalar `json:"invoice"`
		Customer scalar `json:"customer"`
		Lines    []struct {
			Stock    scalar `json:"stock"`
			Quantity scalar `json:"quantity"`
			Price    scalar `json:"price"`
		} `json:"lines"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	order := Order{Invoice: in.Invoice.text, Lines: make([]Line, len(in.Lines))}
	if err := checkName("invoice", order.Invoice); err != nil {
		return err
	}
	var err error
	if order.Customer, err = customerFromJSON(in.Customer); err != nil {
		return err
	}
	if len(in.Lines) == 0 {
		return errors.New("lines: the order has none")
	}
	var sum turnover
	for i, line := range in.Lines {
		order.Lines[i], err = parseLine(line.Stock.text, line.Quantity.text, line.Price.text)
		if err == nil {
			err = sum.add(order.Lines[i])
		}
		if err != nil {
			return fmt.Errorf("lines[%d]: %w", i, err)
		}
	}
	*o = order
	return nil
}

// parseLine returns a line from its three texts.
func parseLine(stock, units, price string) (line Line, err error) {
	if err := checkName("stock code", stock); err != nil {
		return Line{}, err
	}
	line.Stock = stock
	if line.Units, err = parseUnits(strings.TrimSpace(units)); err != nil {
		return Line{}, fmt.Errorf("quantity %q %w", units, err)
	}
	if line.Price, err = parsePence(strings.TrimSpace(price)); err != nil {
		return Line{}, fmt.Errorf("price %q %w", price, err)
	}
	return line, nil
}

// parseCustomer parses a customer number. 17850.0 and 17850 are the same number, and an empty text is a guest.
func parseCustomer(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == Guest {
		return Guest, nil
	}
	number, ok := wholePart(text)
	if !ok {
		return "", fmt.Errorf("customer %q %w", text, errWhole)
	}
	number = cmp.Or(strings.TrimLeft(number, "0"), "0")
	return number, checkName("customer", number)
}

// customerFromJSON also accepts a string that is not a number.
func customerFromJSON(in scalar) (string, error) {
	customer, err := parseCustomer(in.text)
	if errors.Is(err, errWhole) && in.quoted {
		return in.text, checkName("customer", in.text)
	}
	return customer, err
}

// scalar is a JSON string, or the text of a JSON number. It is empty for null.
type scalar struct {
	text   string
	quoted bool
}

func (s *scalar) UnmarshalJSON(raw []byte) error {
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] == '"':
		s.quoted = true
		return json.Unmarshal(raw, &s.text)
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		s.text = string(raw)
		return nil
	}
	return fmt.Errorf("%.20s is neither text nor a number", raw)
}

// checkName returns an error for a name that cannot be a part of a key or a line of a digest.
func checkName(what, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fmt.Errorf("%s is missing", what)
	case len(name) > maxName:
		return fmt.Errorf("%s is longer than %d bytes", what, maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s is not valid UTF-8", what)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%s has a control character", what)
	}
	return nil
}
