package idempotency

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// response is the stored response of a handler.
type response struct {
	Request string      `json:"request"` // the digest of the request
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    []byte      `json:"body"`
}

// notKept are the statuses below 500 after which the same request may succeed, once the client has authenticated or waited.
var notKept = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
}

// isTemporary reports whether the same request may get another response later. Such a response is not committed.
func (r *response) isTemporary() bool {
	return r.Status >= http.StatusInternalServerError || slices.Contains(notKept, r.Status)
}

// withoutCookies returns a copy of r to store. A cookie is only for the client that made the first request.
func (r *response) withoutCookies() *response {
	kept := *r
	kept.Header = r.Header.Clone()
	maps.DeleteFunc(kept.Header, func(name string, _ []string) bool { return strings.EqualFold(name, "Set-Cookie") })
	return &kept
}

func (r *response) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Header)
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // fails only if the client has disconnected
}

var errLarge = errors.New("idempotency: store response: larger than Config.MaxResponse; raise MaxResponse or shorten the response")

// recorder is the ResponseWriter of a handler whose response is sent after the commit. It supports neither Flush nor Hijack.
type recorder struct {
	header  http.Header // the handler's
	sent    http.Header // a copy from when the status was written
	status  int
	body    bytes.Buffer
	limit   int
	tooLong bool
}

func newRecorder(limit int) *recorder { return &recorder{header: http.Header{}, limit: limit} }

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK { // ignores informational responses, which cannot be sent
		r.status, r.sent = status, r.header.Clone()
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.body.Len()+len(p) > r.limit {
		r.tooLong = true
		return 0, errLarge
	}
	return r.body.Write(p)
}

func (r *recorder) response(request string) (*response, error) {
	if r.tooLong {
		return nil, errLarge
	}
	r.WriteHeader(http.StatusOK)
	return &response{request, r.status, r.sent, r.body.Bytes()}, nil
}
