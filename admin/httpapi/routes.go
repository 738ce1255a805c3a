package httpapi

import (
	_ "embed" // openapi.json
	"net/http"

	"github.com/luatx/luatx/admin/internal/guard"
)

//go:embed openapi.json
var openAPI []byte

// routes are those that openapi.json describes.
func (h *Handler) routes() []guard.Route {
	return []guard.Route{
		{Pattern: "GET /livez", Probe: true, Do: h.live},
		{Pattern: "GET /readyz", Probe: true, Do: h.ready},
		{Pattern: "GET /api/openapi.json", Needs: MayView, Do: describe},
		{Pattern: "GET /api/stats", Needs: MayView, Do: h.stats},
		{Pattern: "GET /api/samples", Needs: MayView, Do: h.samples},
		{Pattern: "GET /api/parked", Needs: MayView, Do: h.parked, Scans: true},
		{Pattern: "GET /api/parked/export", Needs: MayView, Do: h.export, Scans: true},
		{Pattern: "POST /api/parked/rearm", Needs: MayRetry, Do: h.rearm, Scans: true}, // as a dry run
		{Pattern: "POST /api/parked/discard", Needs: MayPurge, Do: h.discard},
		{Pattern: "GET /api/event", Needs: MayView, Do: h.event},
		{Pattern: "GET /api/find", Needs: MayView, Do: h.find, Scans: true},
		{Pattern: "POST /api/events/erase", Needs: MayPurge, Do: h.erase},
		{Pattern: "GET /api/operations", Needs: MayView, Do: h.operations},
		{Pattern: "GET /api/operations/{id}", Needs: MayView, Do: h.operation},
		{Pattern: "POST /api/operations/{id}/stop", Needs: MayRetry, Do: h.stop},
		{Pattern: "GET /api/inbox", Needs: MayView, Do: h.inbox},
		{Pattern: "POST /api/inbox/forget", Needs: MayPurge, Do: h.forget},
		{Pattern: "GET /api/destinations", Needs: MayView, Do: h.destinations},
		{Pattern: "POST /api/destinations/pause", Needs: MayRetry, Do: h.pause},
		{Pattern: "POST /api/destinations/resume", Needs: MayRetry, Do: h.resume},
		{Pattern: "GET /api/streams", Needs: MayView, Do: h.streams, Scans: true},
		{Pattern: "GET /api/drain", Needs: MayView, Do: h.drain, Scans: true},
		{Pattern: "GET /api/audit", Needs: MayView, Do: h.audit, Scans: true},
		{Pattern: "GET /api/check", Needs: MayView, Do: h.check, Scans: true},
		{Pattern: "POST /api/fix", Needs: MayRetry, Do: h.fix},
		{Pattern: "GET /api/doctor", Needs: MayView, Do: h.doctor, Scans: true},
	}
}

func describe(c *guard.Call) error {
	c.W.Header().Set("Content-Type", "application/json")
	_, _ = c.W.Write(openAPI) // a reader that has gone needs no answer
	return nil
}

// live says that the process answers.
func (h *Handler) live(c *guard.Call) error {
	return c.Answer(http.StatusOK, map[string]string{"status": "live"})
}

// ready says that the servers answer.
func (h *Handler) ready(c *guard.Call) error {
	if _, err := h.desk.Time(c.R.Context()); err != nil {
		return &guard.Problem{Status: http.StatusServiceUnavailable, Detail: "Redis does not answer"}
	}
	return c.Answer(http.StatusOK, map[string]string{"status": "ready"})
}
