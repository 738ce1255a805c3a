package admin

import (
	_ "embed" // openapi.json
	"net/http"
)

//go:embed openapi.json
var openAPI []byte

// api adds the routes that openapi.json describes.
func (h *Handler) api(rs *routes) {
	rs.all = append(rs.all,
		route{method: http.MethodGet, pattern: "/livez", probe: true, do: h.live},
		route{method: http.MethodGet, pattern: "/readyz", probe: true, do: h.ready},
	)
	get := func(path string, do func(*call) error) { rs.json(http.MethodGet, "/api/"+path, MayView, do) }
	post := func(path string, needs Access, do func(*call) error) {
		rs.json(http.MethodPost, "/api/"+path, needs, do)
	}

	scan := func(path string, do func(*call) error) {
		get(path, do)
		rs.scanning()
	}

	get("openapi.json", func(c *call) error {
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = c.w.Write(openAPI) // a reader that has gone needs no answer
		return nil
	})
	get("stats", h.stats)
	get("samples", h.history)
	scan("parked", h.listParked)
	scan("parked/export", h.export)
	post("parked/rearm", MayRetry, h.rearm)
	rs.scanning() // as a dry run
	post("parked/discard", MayPurge, h.discard)
	get("event", h.show)
	scan("find", h.find)
	post("events/erase", MayPurge, h.erase)
	get("operations", h.listOperations)
	get("operations/{id}", h.operation)
	post("operations/{id}/stop", MayRetry, h.stop)
	get("inbox", h.inbox)
	post("inbox/forget", MayPurge, h.forget)
	get("destinations", h.destinations)
	post("destinations/pause", MayRetry, h.pause)
	post("destinations/resume", MayRetry, h.resume)
	scan("streams", h.streams)
	scan("drain", h.drain)
	scan("audit", h.audit)
	scan("check", h.checkShards)
	post("fix", MayRetry, h.fix)
	scan("doctor", h.doctor)
}
