package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/luatx/luatx/internal/pretty"
	"github.com/luatx/luatx/outbox"
	"github.com/luatx/luatx/repair"
)

// live says that the process answers.
func (h *Handler) live(c *call) error {
	return c.answer(http.StatusOK, map[string]string{"status": "live"})
}

// ready says that the servers answer.
func (h *Handler) ready(c *call) error {
	if err := h.op.cfg.Client.Time(c.r.Context()).Err(); err != nil {
		return &problem{Status: http.StatusServiceUnavailable, Detail: "Redis does not answer"}
	}
	return c.answer(http.StatusOK, map[string]string{"status": "ready"})
}

// listOperations answers with the operations that are remembered.
func (h *Handler) listOperations(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{"operations": h.operations.list()})
}

// operation answers with one.
func (h *Handler) operation(c *call) error {
	if err := c.only(); err != nil {
		return err
	}
	view, ok := h.operations.get(c.id)
	if !ok {
		return &problem{Status: http.StatusNotFound, Detail: "no such operation: the last " + strconv.Itoa(keptOperations) + " are remembered, by the process that ran them"}
	}
	return c.answer(http.StatusOK, view)
}

// maxStreams is how many streams are looked at for one request.
const maxStreams = 1000

type streamJSON struct {
	StreamState

	Error string `json:"error,omitempty"`
}

func newStream(s StreamState, err error) streamJSON {
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

// keys are the streams that are asked for, or those of the configuration.
func (c *call) keys() ([]string, error) {
	keys := c.query["key"]
	if len(keys) == 0 {
		keys = c.h.cfg.Streams
	}
	if len(keys) > maxStreams {
		return nil, badRequest("%d keys: use at most %d", len(keys), maxStreams)
	}
	return keys, nil
}

// streams answers with streams and who reads them.
func (h *Handler) streams(c *call) error {
	if err := c.only("key"); err != nil {
		return err
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	all := []streamJSON{}
	for s, err := range c.op.Streams(c.r.Context(), keys...) {
		all = append(all, newStream(s, err))
	}
	if err := c.r.Context().Err(); err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{"streams": all})
}

// drain answers with what is left in the keyspace.
func (h *Handler) drain(c *call) error {
	if err := c.only("key"); err != nil {
		return err
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	d, err := c.op.Drain(c.r.Context(), keys...)
	if err != nil {
		return err
	}
	streams := []streamJSON{}
	for _, s := range d.Streams {
		streams = append(streams, newStream(s, nil))
	}
	for i := range d.Shards {
		d.Shards[i].Timer = pretty.Time(d.Shards[i].Timer)
	}
	return c.answer(http.StatusOK, map[string]any{"done": d.Done(), "shards": orEmpty(d.Shards), "streams": streams})
}

type markJSON struct {
	Slot    int       `json:"slot"`
	Known   bool      `json:"known"`
	Broken  string    `json:"broken"`
	Replies bool      `json:"replies"`
	Begun   time.Time `json:"begun,omitzero"`
	Older   bool      `json:"older"`
}

// inbox answers with what the inbox knows of a message.
func (h *Handler) inbox(c *call) error {
	if err := c.only("aggregate", "scope", "handler", "source", "id"); err != nil {
		return err
	}
	id, err := h.messageID(c.query.Get("scope"), c.query.Get("handler"), c.query.Get("source"), c.query.Get("id"))
	if err != nil {
		return err
	}
	m, err := c.op.Known(c.r.Context(), c.query.Get("aggregate"), id)
	if err != nil {
		return err
	}
	m.Begun = pretty.Time(m.Begun)
	return c.answer(http.StatusOK, markJSON(m))
}

type recordJSON struct {
	Slot      int       `json:"slot"`
	At        time.Time `json:"at"`
	Operation string    `json:"operation"`
	Call      int       `json:"call"`
	Who       string    `json:"who"`
	Act       string    `json:"act"`
	Why       string    `json:"why"`
	Done      int       `json:"done"`
	Asked     int       `json:"asked"`
	IDs       []string  `json:"ids"`
}

// audit answers with what was done since a time, newest first.
func (h *Handler) audit(c *call) error {
	if err := c.only("since", "limit"); err != nil {
		return err
	}
	since, err := time.ParseDuration(cmp.Or(c.query.Get("since"), "24h"))
	if err != nil || since < 0 {
		return badRequest("since %.80q: use a duration as 90s or 24h", c.query.Get("since"))
	}
	limit, err := c.number("limit", pageLimit, 1, maxPage)
	if err != nil {
		return err
	}
	last := []recordJSON{}
	more := false
	for r, err := range c.op.Audit(c.r.Context(), time.Now().Add(-since)) {
		if err != nil {
			return err
		}
		if len(last) == 2*limit { // the first half is of no use any more
			last = append(last[:0], last[limit:]...)
			more = true
		}
		last = append(last, newRecord(r))
	}
	if len(last) > limit {
		last, more = last[len(last)-limit:], true
	}
	slices.Reverse(last)
	return c.answer(http.StatusOK, map[string]any{"records": last, "more": more})
}

func newRecord(r outbox.Record) recordJSON {
	j := recordJSON(r)
	j.At, j.IDs = pretty.Time(r.At), orEmpty(r.IDs)
	return j
}

type findingJSON struct {
	Slot   int    `json:"slot"`
	Kind   string `json:"kind"`
	Key    string `json:"key"`
	ID     string `json:"id"`
	Detail string `json:"detail"`
	Fixed  bool   `json:"fixed"`
	Text   string `json:"text"`
}

func newFinding(f repair.Finding) findingJSON {
	return findingJSON{f.Slot, string(f.Kind), f.Key, f.ID, f.Detail, f.Fixed, f.String()}
}

// checkShards answers with what disagrees in the shards.
func (h *Handler) checkShards(c *call) error {
	if err := c.only("slot"); err != nil {
		return err
	}
	f, err := filterOf(c.query)
	if err == nil {
		err = h.repairs(f.Slots...)
	}
	if err != nil {
		return err
	}
	found := []findingJSON{}
	more := false
	for f, err := range c.op.Check(c.r.Context(), f.Slots...) {
		if err != nil {
			return err
		}
		if more = len(found) == maxFindings; more {
			break
		}
		found = append(found, newFinding(f))
	}
	return c.answer(http.StatusOK, map[string]any{"findings": found, "more": more})
}

type diagnosisJSON struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Node     string   `json:"node"`
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy"`
}

// doctor answers with what is wrong with the servers.
func (h *Handler) doctor(c *call) error {
	if err := c.only("role"); err != nil {
		return err
	}
	role := Role(cmp.Or(c.query.Get("role"), string(RoleApplication)))
	if !slices.Contains(Roles(), role) {
		return badRequest("role %.80q: use one of %v", role, Roles())
	}
	found, err := c.op.Examine(c.r.Context(), Examination{Role: role})
	if err != nil {
		return err
	}
	all := []diagnosisJSON{}
	for _, d := range found {
		all = append(all, diagnosisJSON(d))
	}
	return c.answer(http.StatusOK, map[string]any{"findings": all})
}
