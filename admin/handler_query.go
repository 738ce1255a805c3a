package admin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatx/luatx/outbox"
)

// filterNames are what an address may say of a filter.
var filterNames = []string{"aggregate", "destination", "type", "key", "class", "text", "older_than", "id", "slot"}

// filterOf reads the filter of an address.
func filterOf(query url.Values) (f outbox.Filter, err error) {
	f = outbox.Filter{
		Aggregate: query.Get("aggregate"), Destination: query.Get("destination"), Type: query.Get("type"), Key: query.Get("key"),
		Class: query.Get("class"), Text: query.Get("text"), IDs: query["id"],
	}
	if text := query.Get("older_than"); text != "" {
		if f.OlderThan, err = time.ParseDuration(text); err != nil || f.OlderThan < 0 {
			return f, badRequest("older_than %q: use a duration as 90s or 1h30m", text)
		}
	}
	for _, text := range query["slot"] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return f, badRequest("slot %q: use a number", text)
		}
		f.Slots = append(f.Slots, n)
	}
	return f, nil
}

// filterValues is a filter as an address says it.
func filterValues(f outbox.Filter) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{
		"aggregate": f.Aggregate, "destination": f.Destination, "type": f.Type, "key": f.Key, "class": f.Class, "text": f.Text,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.OlderThan > 0 {
		query.Set("older_than", f.OlderThan.String())
	}
	for _, id := range f.IDs {
		query.Add("id", id)
	}
	for _, n := range f.Slots {
		query.Add("slot", strconv.Itoa(n))
	}
	return query
}

// maxFilterIDs is how many events a filter may name.
const maxFilterIDs = 1000

// check refuses a filter that the shards could not make sense of.
func (h *Handler) check(f outbox.Filter) error {
	if len(f.IDs) > maxFilterIDs {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("the filter names %d ids: use at most %d", len(f.IDs), maxFilterIDs)}
	}
	return h.ours(f.Slots...)
}

// ours refuses slots that hold no shard of the keyspace.
func (h *Handler) ours(slots ...int) error {
	for _, n := range slots {
		if !h.slots[n] {
			return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("no shard of the keyspace is in slot %d", n)}
		}
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// only refuses what a route does not know, so that nothing misspelt means more than it says.
func (c *call) only(names ...string) error {
	for name := range c.query {
		if !slices.Contains(names, name) {
			return badRequest("the query names %.80q: this route knows %q", name, names)
		}
	}
	return nil
}

// number reads a number of the query.
func (c *call) number(name string, otherwise, least, most int) (int, error) {
	text := c.query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s %.80q: use %d to %d", name, text, least, most)
	}
	return n, nil
}

// flag reads a 1 or 0 of the query.
func (c *call) flag(name string) (bool, error) {
	n, err := c.number(name, 0, 0, 1)
	return n == 1, err
}

// decode reads the body, which must be one JSON object without unknown fields.
func (c *call) decode(into any) error {
	if err := c.only(); err != nil {
		return err
	}
	var text []byte
	err := c.reading(func() (err error) {
		text, err = io.ReadAll(c.r.Body)
		return err
	})
	if err != nil {
		return unreadable(err)
	}
	if !utf8.Valid(text) {
		return badRequest("the body is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badRequest("the body: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body goes on behind its object")
	}
	return nil
}

// cursorOf says where a list goes on behind an event.
func cursorOf(e outbox.Event) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", e.Slot, e.At.UnixMilli(), e.ID))
}

// parseCursor reads what cursorOf has written.
func parseCursor(text string) (e outbox.Event, err error) {
	plain, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.SplitN(string(plain), " ", 3)
	if err != nil || len(parts) != 3 {
		return e, badRequest("cursor %.80q: use next of the page before", text)
	}
	slot, err := strconv.Atoi(parts[0])
	ms, wrong := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || wrong != nil || slot < 0 {
		return e, badRequest("cursor %.80q: use next of the page before", text)
	}
	return outbox.Event{Slot: slot, At: time.UnixMilli(ms), ID: parts[2]}, nil
}
