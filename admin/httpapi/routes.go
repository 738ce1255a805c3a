package httpapi

import (
	_ "embed" // openapi.json
	"net/http"
	"slices"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
)

//go:embed openapi.json
var openAPI []byte

// routes are those that openapi.json describes.
func (h *Handler) routes() []guard.Route {
	return append(h.changeRoutes(), []guard.Route{
		{Pattern: "GET /livez", Probe: true, Do: h.live},
		{Pattern: "GET /readyz", Probe: true, Do: h.ready},
		{Pattern: "GET /api/openapi.json", Needs: MayView, Do: describe},
		{Pattern: "GET /api/stats", Needs: MayView, Do: reads(h.stats)},
		{Pattern: "GET /api/history", Needs: MayView, Do: reads(h.history, "since", "until", "step"), Scans: true},
		{Pattern: "GET /api/blocked", Needs: MayView, Do: reads(h.blocked, append(slices.Clone(desk.FilterNames), "cursor", "limit")...), Scans: true},
		{Pattern: "GET /api/parked", Needs: MayView, Do: reads(h.parked, append(slices.Clone(desk.FilterNames), "cursor", "limit")...), Scans: true},
		{Pattern: "GET /api/parked/export", Needs: MayView, Do: reads(h.export, desk.FilterNames...), Scans: true},
		{Pattern: "POST /api/parked/rearm", Needs: MayRetry, Do: does(h.rearm), Scans: true}, // as a dry run
		{Pattern: "POST /api/parked/discard", Needs: MayPurge, Do: does(h.discard), Scans: true},
		{Pattern: "GET /api/events", Needs: MayView, Do: reads(h.events, append(slices.Clone(desk.FilterNames), "state", "cursor", "limit")...), Scans: true},
		{Pattern: "GET /api/event", Needs: MayView, Do: reads(h.event, "slot", "id", "payload")},
		{Pattern: "GET /api/find", Needs: MayView, Do: reads(h.find, "id", "payload"), Scans: true},
		{Pattern: "POST /api/events/erase", Needs: MayPurge, Do: does(h.erase)},
		{Pattern: "GET /api/dead", Needs: MayView, Do: reads(h.dead, append(slices.Clone(desk.DeadNames), "stream", "cursor", "limit")...), Scans: true},
		{Pattern: "GET /api/dead/letter", Needs: MayView, Do: reads(h.deadLetter, "stream", "id", "payload")},
		{Pattern: "GET /api/dead/export", Needs: MayView, Do: reads(h.deadExport, append(slices.Clone(desk.DeadNames), "stream")...), Scans: true},
		{Pattern: "POST /api/dead/import", Needs: MayPurge, Do: does(h.deadImport), Scans: true}, // it reads all dead letters
		{Pattern: "POST /api/dead/retry", Needs: MayRetry, Do: does(h.deadRetry), Scans: true},   // as a dry run
		{Pattern: "POST /api/dead/discard", Needs: MayPurge, Do: does(h.deadDiscard), Scans: true},
		{Pattern: "GET /api/operations", Needs: MayView, Do: reads(h.operations)},
		{Pattern: "GET /api/operations/{id}", Needs: MayView, Do: reads(h.operation)},
		{Pattern: "POST /api/operations/{id}/stop", Needs: MayRetry, Do: does(h.stop)},
		{Pattern: "GET /api/inbox", Needs: MayView, Do: reads(h.inbox, "aggregate", "scope", "handler", "source", "id")},
		{Pattern: "POST /api/inbox/forget", Needs: MayPurge, Do: does(h.forget)},
		{Pattern: "GET /api/destinations", Needs: MayView, Do: reads(h.paused)},
		{Pattern: "POST /api/destinations/pause", Needs: MayRetry, Do: does(h.pause)},
		{Pattern: "POST /api/destinations/resume", Needs: MayRetry, Do: does(h.resume)},
		{Pattern: "GET /api/timers", Needs: MayView, Do: reads(h.timers, "decided", "due", "text", "slot", "cursor", "limit"), Scans: true},
		{Pattern: "GET /api/timer", Needs: MayView, Do: reads(h.timer, "subject"), Scans: true},
		{Pattern: "GET /api/processes", Needs: MayView, Do: reads(h.processes, "kind"), Scans: true},
		{Pattern: "GET /api/streams", Needs: MayView, Do: reads(h.streams, "key"), Scans: true},
		{Pattern: "GET /api/drain", Needs: MayView, Do: reads(h.drain, "key"), Scans: true},
		{Pattern: "GET /api/audit", Needs: MayView, Do: reads(h.audit, "since", "limit"), Scans: true},
		{Pattern: "GET /api/check", Needs: MayView, Do: reads(h.check, "slot"), Scans: true},
		{Pattern: "POST /api/fix", Needs: MayRetry, Do: does(h.fix)},
		{Pattern: "GET /api/doctor", Needs: MayView, Do: reads(h.doctor, "role"), Scans: true},
	}...)
}

// reads returns a route that accepts only the named query parameters.
func reads(do func(*guard.Call) error, names ...string) func(*guard.Call) error {
	return func(c *guard.Call) error {
		if err := c.Only(names...); err != nil {
			return err
		}
		return do(c)
	}
}

// does returns a route that decodes its body into a request of one type.
func does[T any](do func(*guard.Call, T) error) func(*guard.Call) error {
	return func(c *guard.Call) error {
		var ask T
		if err := c.Decode(&ask); err != nil {
			return err
		}
		return do(c, ask)
	}
}

func describe(c *guard.Call) error {
	c.W.Header().Set("Content-Type", "application/json")
	_, _ = c.W.Write(openAPI) // a client that has disconnected needs no response
	return nil
}

// live reports that the process is alive.
func (h *Handler) live(c *guard.Call) error {
	return c.Answer(http.StatusOK, map[string]string{"status": "live"})
}

// ready reports that the servers reply.
func (h *Handler) ready(c *guard.Call) error {
	if _, err := h.desk.Time(c.R.Context()); err != nil {
		return &guard.Problem{Status: http.StatusServiceUnavailable, Detail: "Redis does not reply"}
	}
	return c.Answer(http.StatusOK, map[string]string{"status": "ready"})
}
