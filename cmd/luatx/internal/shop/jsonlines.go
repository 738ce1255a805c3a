package shop

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/luatx/luatx/message"
)

// addEvent adds the invoice of one event.
func (c *collector) addEvent(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("is not valid UTF-8") // decoding would silently replace it
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
		return fmt.Errorf("invoice %s occurs twice", order.Invoice)
	}
	sum := c.turnover
	for _, line := range order.Lines {
		if err := sum.add(line); err != nil {
			return err
		}
	}
	c.turnover = sum
	c.index[order.Invoice] = len(c.orders)
	c.orders = append(c.orders, order)
	return nil
}
