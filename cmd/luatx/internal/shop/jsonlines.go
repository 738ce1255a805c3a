package shop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// readJSONLines reads a CloudEvent a line, from the first one on, which has been
// read already.
func readJSONLines(in *lineReader, text []byte, c *collector) error {
	for {
		if len(bytes.TrimSpace(text)) > 0 {
			if err := c.addEvent(text); err != nil {
				c.problem(in.number, err)
			}
		}
		var err error
		text, err = in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLongLine):
			c.problem(in.number, err)
		case err != nil:
			return err
		}
	}
}

// addEvent adds the invoice of one event.
func (c *collector) addEvent(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("is not valid UTF-8") // decoding would replace it in silence
	}
	var raw message.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	order, err := FromMessage(&raw)
	if err != nil {
		return err
	}
	if _, known := c.index[order.Invoice]; known {
		return fmt.Errorf("invoice %s was read before", order.Invoice)
	}
	sum := c.turnover
	for i, line := range order.Lines {
		if err := sum.add(line); err != nil {
			return err
		}
		order.Lines[i].Stock = c.name(line.Stock)
	}
	c.turnover = sum
	order.Customer = c.name(order.Customer)
	c.index[order.Invoice] = len(c.orders)
	c.orders = append(c.orders, order)
	return nil
}
