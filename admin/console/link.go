package console

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/outbox"
)

// pageLink returns an address within the console, from a base, a path, and names and values.
func pageLink(base, to string, pairs ...string) string {
	query := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		query.Add(pair[0], pair[1])
	}
	return linkTo(base, to, query)
}

func linkTo(base, to string, query url.Values) string {
	if encoded := query.Encode(); encoded != "" {
		return base + to + "?" + encoded
	}
	return base + to
}

// filterLink returns the address of the parked events that match a filter.
func filterLink(base, to string, f outbox.Filter, more ...string) string {
	query := desk.FilterValues(f)
	for pair := range slices.Chunk(more, 2) {
		query.Set(pair[0], pair[1])
	}
	return linkTo(base, to, query)
}

// eventLink returns the address of an event.
func eventLink(base string, e outbox.Event) string {
	return pageLink(base, "event", "slot", strconv.Itoa(e.Slot), "id", e.ID)
}
