package httpapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

// dice generates requests, from valid values, nearly valid ones, and noise.
type dice struct {
	*rand.Rand

	ward   ward
	doc    document
	routes []string
	pages  []string
	paths  []string // paths that lead elsewhere
}

func newDice(t testing.TB, w ward, seed uint64) dice {
	t.Helper()
	return dice{
		rand.New(rand.NewPCG(seed, 1)), w, described(t), slices.Sorted(maps.Keys(w.handler.Routes())), slices.Sorted(maps.Keys(pagesOf(t, w.handler))),
		[]string{"/", "", "/api", "/api/", "/parked", "/event", "/static/x", "/operations/x", "/../api/stats", "//api/stats", "/api/stats/", "/api/parked/%72earm"},
	}
}

func oneOf[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// noise returns a random text.
func (d dice) noise() string {
	switch d.IntN(4) {
	case 0:
		return oneOf(d, admintest.Hostile, `" onload="x`, "{{.}}", "' OR 1=1 --", "\x00", "\xff\xfe", "{a}b{c}", "../../etc/passwd", strings.Repeat("x", 5000), "日本語", "\r\nSet-Cookie: a=b", "%s%n", "*", "-")
	case 1:
		return oneOf(d, "-1", "0", "1", "99999999999999999999", "1e309", "NaN", "0x10", "16384", "1.5", strconv.Itoa(d.ward.slot))
	case 2:
		return oneOf(d, "", "1", "2", "http_422", "sold", "bank", "a", "1h", "24h", "-1h", "relay", "all", "true", "null")
	}
	b := make([]byte, d.IntN(40))
	for i := range b {
		b[i] = byte(d.IntN(256))
	}
	return string(b)
}

// known returns a value that a parameter or field of the name can have, or other.
func (d dice) known(name, other string) string {
	switch name {
	case "slot":
		return strconv.Itoa(d.ward.slot)
	case "stream":
		return d.ward.stream
	case "id":
		return oneOf(d, d.ward.letter, "1", "p1", other)
	case "key":
		return oneOf(d, "k", d.ward.stream)
	case "kind":
		return oneOf(d, "relay", "trigger", other)
	case "subject", "text":
		return oneOf(d, "t1", "t2", other)
	case "state":
		return oneOf(d, "pending", "retrying", "scheduled", "waiting", "leased", "parked", "sent", "due", "decided")
	case "cursor":
		return oneOf(d, d.ward.letter, "MSAyIHg", base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d t", d.ward.slot, d.IntN(9))), other)
	case "lines":
		return fmt.Sprintf(`{"stream":%q,"id":"1-1","fields":["a",%q]}`, d.ward.stream, other)
	}
	return other
}

// query returns a query, mostly one that a route accepts.
func (d dice) query(about action) string {
	if d.IntN(20) == 0 {
		return d.noise()
	}
	names := []string{"undescribed"}
	for _, p := range about.Parameters {
		names = append(names, p.Name, p.Name, p.Name)
	}
	var parts []string
	for range d.IntN(4) {
		name, value := oneOf(d, names...), d.noise()
		if d.IntN(3) > 0 {
			value = d.known(name, value)
		}
		parts = append(parts, name+"="+url.QueryEscape(value))
	}
	return strings.Join(parts, "&")
}

// body returns a body, mostly one with fields that a route accepts.
func (d dice) body(about action) string {
	if about.RequestBody == nil || d.IntN(10) == 0 {
		return oneOf(d, d.noise(), "", "{", "[]", "null", "1", `"x"`, "{}{}", `{"events":{}}`, strings.Repeat("[", 5000), `{"all":true,"all":false}`)
	}
	of := d.doc.resolve(about.RequestBody.Content["application/json"].Schema)
	return d.object(of)
}

func (d dice) object(of schema) string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		if slices.Contains(of.Required, name) && d.IntN(10) > 0 || d.IntN(3) == 0 {
			fields = append(fields, strconv.Quote(name)+":"+d.value(name, d.doc.resolve(of.Properties[name])))
		}
	}
	if d.IntN(20) == 0 {
		fields = append(fields, `"undescribed":1`)
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// value returns a value, mostly one that a field accepts.
func (d dice) value(name string, of schema) string {
	if d.IntN(20) == 0 {
		return oneOf(d, "null", "[]", "{}", "-1", "1e300", `""`, "[[]]", "true", "99999999999999999999")
	}
	switch of.Type {
	case "boolean":
		return oneOf(d, "true", "false")
	case "integer", "number":
		if name == "slot" || name == "items" {
			return strconv.Itoa(d.ward.slot)
		}
		return oneOf(d, "0", "1", "3", "0.5", "1000", "-1")
	case "array":
		var items []string
		for range d.IntN(3) {
			items = append(items, d.value("items", d.doc.resolve(*of.Items)))
		}
		return "[" + strings.Join(items, ",") + "]"
	case "object":
		return d.object(of)
	}
	text, _ := json.Marshal(d.known(name, oneOf(d, strconv.Itoa(d.IntN(9)), "http_422", "sold", "bank", "a", d.noise()))) // a string cannot fail
	return string(text)
}

// page requests a page of the console, mostly with the fields of its forms.
func (d dice) page() *http.Request {
	method, path, _ := strings.Cut(oneOf(d, d.pages...), " ")
	path = strings.ReplaceAll(path, "{id}", url.PathEscape(d.noise()))
	form := url.Values{}
	for range d.IntN(6) {
		name := oneOf(d, pageFields...)
		form.Add(name, d.known(name, oneOf(d, "1", "on", "yes", "all", "10", "http_422", "bank", strconv.Itoa(d.ward.slot), strconv.Itoa(d.ward.slot)+" 1", d.noise())))
	}
	if method != http.MethodPost {
		return made(method, path, form.Encode(), "")
	}
	if d.IntN(4) > 0 {
		r := made(method, path, "", form.Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}
	var body strings.Builder
	w := multipart.NewWriter(&body)
	for name, values := range form {
		_ = w.WriteField(name, values[0]) // a Builder takes all
	}
	if part, err := w.CreateFormFile(oneOf(d, "file", "lines"), d.noise()); err == nil {
		_, _ = part.Write([]byte(d.known("lines", d.noise())))
	}
	_ = w.Close()
	r := made(method, path, "", body.String()[:body.Len()-d.IntN(2)*d.IntN(body.Len())])
	r.Header.Set("Content-Type", w.FormDataContentType())
	return r
}

// pageFields lists names of form fields.
var pageFields = []string{
	"aggregate", "destination", "type", "key", "class", "text", "older_than", "id", "slot", "cursor", "limit", "payload", "event", "reason", "canary", "rate", "max_parked_again",
	"canary_wait", "all", "confirm", "count", "expected", "to", "scope", "handler", "source", "for", "since", "role", "theme", "body", "check", "here", "of", "sure", "state", "at", "stream", "group", "lines", "kind", "x",
}

// request returns a random request.
func (d dice) request() *http.Request {
	if d.IntN(4) == 0 {
		return d.page()
	}
	route := oneOf(d, d.routes...)
	about, _ := d.doc.of(route)
	method, path, _ := strings.Cut(route, " ")
	path = strings.ReplaceAll(path, "{id}", url.PathEscape(d.noise()))
	switch d.IntN(20) {
	case 0:
		path = "/" + d.noise()
	case 1:
		path = oneOf(d, d.paths...)
	case 2:
		method = oneOf(d, "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "get", "")
	}
	r := made(method, path, d.query(about), d.body(about))
	if method == http.MethodPost {
		r.URL.RawQuery = oneOf(d, "", "", "", "", r.URL.RawQuery)
		r.Header.Set("Content-Type", oneOf(d, "application/json", "application/json", "application/json", "application/json; charset=utf-8", "APPLICATION/JSON", d.noise()))
	}
	for range d.IntN(3) {
		r.Header.Set(oneOf(d, "Accept", "Authorization", "Range", "Expect", "Cookie", "If-Modified-Since"), oneOf(d, d.noise(), "text/html", "*/*"))
	}
	switch d.IntN(20) {
	case 0:
		r.Host = d.noise()
	case 1:
		r.RemoteAddr = oneOf(d, "192.0.2.1:1", "", "[::1]:2", d.noise())
	case 2:
		r.Header.Set(oneOf(d, "Origin", "Sec-Fetch-Site", "X-Forwarded-For", "Content-Type"), oneOf(d, "same-origin", "cross-site", "http://localhost", d.noise()))
	}
	return r
}

// made returns a request as a server would pass it on, whatever it contains.
func made(method, path, query, body string) *http.Request {
	return &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query}, RequestURI: path + "?" + query, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Host: "localhost", RemoteAddr: "127.0.0.1:1",
	}
}

// blameless returns an error if a reply is invalid for any request.
func blameless(r *http.Request, w *httptest.ResponseRecorder) error {
	kind := w.Header().Get("Content-Type")
	switch {
	case w.Code >= 500:
		return fmt.Errorf("status %d", w.Code)
	case w.Header().Get("Content-Security-Policy") == "":
		return fmt.Errorf("the Content-Security-Policy header is missing")
	case w.Code >= 400 && strings.HasPrefix(r.URL.Path, "/api/") && kind != "application/problem+json":
		return fmt.Errorf("status %d is of type %q", w.Code, kind)
	case strings.Contains(kind, "json") && kind != "application/x-ndjson" && strings.Contains(w.Body.String(), "<"):
		return fmt.Errorf("markup is not escaped")
	case kind != "application/x-ndjson" && strings.Contains(w.Body.String(), "<script>alert"):
		return fmt.Errorf("the page contains an injected script")
	case w.Header().Get("Set-Cookie") != "" && strings.Contains(w.Header().Get("Set-Cookie"), "a=b"):
		return fmt.Errorf("the response contains an injected header")
	}
	return nil
}

// TestRandomRequestsNeverCauseAServerError uses LUATX_SEED to choose other requests.
func TestRandomRequestsNeverCauseAServerError(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	seed := uint64(20260710)
	if text := os.Getenv("LUATX_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		redistest.Must(t, err)
	}
	w := newWard(t, redistest.Shared(t).Client(t), httpapi.Config{Logger: slog.New(slog.DiscardHandler), MaxOperations: 50})
	admintest.Block(t, w.tr, "a", "k", "head", "behind")
	d, statuses := newDice(t, w, seed), map[int]int{}
	requests := 8_000
	if os.Getenv("LUATX_VERIFY") != "" {
		requests = 100_000
	}
	for i := range requests {
		if i%500 == 0 {
			admintest.Park(t, w.tr, "a", "http_422", "sold", fmt.Sprint("f", i), fmt.Sprint("g", i))
		}
		r := d.request()
		reply := httptest.NewRecorder()
		w.handler.ServeHTTP(reply, r.WithContext(t.Context()))
		if err := blameless(r, reply); err != nil {
			t.Fatalf("request %d of seed %d: %s %q?%q %v: %v: %s", i, seed, r.Method, r.URL.Path, r.URL.RawQuery, r.Header, err, reply.Body)
		}
		statuses[reply.Code]++
	}
	t.Logf("statuses: %v", statuses)
	for _, status := range []int{200, 202, 400, 403, 404, 405, 415, 422} {
		if statuses[status] < 10 {
			t.Errorf("status %d was returned only %d times: the random requests are one-sided", status, statuses[status])
		}
	}
}

// FuzzHandler searches for a request without a reply, or with a server error.
func FuzzHandler(f *testing.F) {
	f.Add("GET", "/api/parked", "class=http_422&limit=2", "application/json", "")
	f.Add("POST", "/api/parked/rearm", "", "application/json", `{"filter":{"class":"http_422"},"dry_run":true}`)
	f.Add("POST", "/api/events/erase", "", "application/json", `{"events":[{"slot":1,"id":"x"}],"reason":"r"}`)
	f.Add("GET", "/api/dead", "stream=s&cursor=1-1%40pt0", "", "")
	f.Add("POST", "/api/dead/import", "", "application/json", `{"stream":"s","dry_run":true,"letters":[{"stream":"s","fields":["a","b"]}]}`)
	f.Add("GET", "/api/blocked", "key=k&cursor=MSAyIHg", "", "")
	f.Add("GET", "/api/events", "state=waiting&cursor=MSAyIHg", "", "")
	f.Add("POST", "/api/events/reschedule", "", "application/json", `{"all":true,"dry_run":true,"reason":"r","at":"2100-01-01T00:00:00Z"}`)
	f.Add("GET", "/api/timers", "decided=1&cursor=MSAyIHg", "", "")
	f.Add("GET", "/api/timer", "subject=t1", "", "")
	f.Add("GET", "/api/processes", "kind=trigger", "", "")
	f.Add("GET", "/api/find", "id=%3Cscript%3E&payload=1", "", "")
	_, client := redistest.Mini(f)
	w := newWard(f, redis.UniversalClient(client), httpapi.Config{Logger: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, method, path, query, kind, body string) {
		r := made(method, path, query, body)
		r.Header.Set("Content-Type", kind)
		reply := httptest.NewRecorder()
		w.handler.ServeHTTP(reply, r.WithContext(t.Context()))
		if err := blameless(r, reply); err != nil {
			t.Errorf("%v: %s", err, reply.Body)
		}
	})
}
