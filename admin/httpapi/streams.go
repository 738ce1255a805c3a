package httpapi

import (
	"net/http"
	"slices"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/pretty"
)

// maxStreams is the maximum number of streams per request.
const maxStreams = 1000

type streamJSON struct {
	admin.StreamState

	Error string `json:"error,omitempty"`
}

func newStream(s admin.StreamState, err error) streamJSON {
	s.Groups = slices.Clone(orEmpty(s.Groups))
	for i := range s.Groups {
		s.Groups[i].Consumers = orEmpty(s.Groups[i].Consumers)
	}
	j := streamJSON{StreamState: s}
	if err != nil {
		j.Error = err.Error()
	}
	return j
}

// keys returns the requested streams, or those of the configuration.
func (h *Handler) keys(c *guard.Call) ([]string, error) {
	keys := c.Query["key"]
	if len(keys) == 0 {
		keys = h.desk.Streams
	}
	if len(keys) > maxStreams {
		return nil, guard.BadRequest("the query names %d keys; use at most %d", len(keys), maxStreams)
	}
	return keys, nil
}

// streams replies with streams and their groups.
func (h *Handler) streams(c *guard.Call) error {
	keys, err := h.keys(c)
	if err != nil {
		return err
	}
	all := []streamJSON{}
	for s, err := range c.Op.Streams(c.R.Context(), keys...) {
		all = append(all, newStream(s, err))
	}
	if err := c.R.Context().Err(); err != nil {
		return err
	}
	return c.Answer(http.StatusOK, map[string]any{"streams": all})
}

// drain replies with the unfinished work in the keyspace.
func (h *Handler) drain(c *guard.Call) error {
	keys, err := h.keys(c)
	if err != nil {
		return err
	}
	shards, unread, err := c.Op.Drain(c.R.Context(), keys...)
	if err != nil {
		return err
	}
	streams := []streamJSON{}
	for _, s := range unread {
		streams = append(streams, newStream(s, nil))
	}
	for i := range shards {
		shards[i].Timer = pretty.Time(shards[i].Timer)
	}
	done := len(shards) == 0 && len(streams) == 0
	return c.Answer(http.StatusOK, map[string]any{"done": done, "shards": orEmpty(shards), "streams": streams})
}
