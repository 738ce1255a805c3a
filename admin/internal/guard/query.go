package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Only returns a problem for unknown parameters, so that a misspelled filter does not select more.
func (c *Call) Only(names ...string) error {
	for name := range c.Query {
		if !slices.Contains(names, name) {
			return BadRequest("the parameter %.80q is unknown; this route accepts %q", name, names)
		}
	}
	return nil
}

// Number parses a number in the query.
func (c *Call) Number(name string, otherwise, least, most int) (int, error) {
	text := c.Query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, BadRequest("%s %.80q is not a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// Flag parses 1 or 0 in the query.
func (c *Call) Flag(name string) (bool, error) {
	n, err := c.Number(name, 0, 0, 1)
	return n == 1, err
}

// Decode reads the body, which must be one JSON object without unknown fields.
func (c *Call) Decode(into any) error {
	if err := c.Only(); err != nil {
		return err
	}
	var text []byte
	err := c.reading(func() (err error) {
		text, err = io.ReadAll(c.R.Body)
		return err
	})
	if err != nil {
		return unreadable(err)
	}
	if !utf8.Valid(text) {
		return BadRequest("the body is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return BadRequest("decode the body: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return BadRequest("the body continues after its JSON object")
	}
	return nil
}
