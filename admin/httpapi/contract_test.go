package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/internal/history"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/test/redistest"
)

// ward is a handler with its service: events in each state, some of them corrupt.
type ward struct {
	tr      *luatx.Transactor
	handler *httpapi.Handler
	slot    int
	stream  string
	letter  string // the id of a dead letter
}

func newWard(t testing.TB, client redis.UniversalClient, cfg httpapi.Config) ward {
	t.Helper()
	w := ward{stream: "{" + redistest.Tag(t) + "}:orders"}
	cfg.Streams = []string{w.stream}
	w.tr, w.handler = handler(t, client, cfg)
	ctx := redistest.Soon(t)
	redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: w.stream, Values: []string{"f", "v"}}).Err())
	redistest.Must(t, client.XGroupCreate(ctx, w.stream, "g", "0").Err())
	redistest.Must(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{w.stream, ">"}}).Err())
	admintest.DeadLetters(t, client, w.stream, "g", "no "+admintest.Hostile, 3)
	admintest.Park(t, w.tr, "a", "http_422", "sold", "1", "2", "3", admintest.Hostile, "4")
	admintest.Park(t, w.tr, "a", "refused", "paid", "5", "6")
	admintest.Emit(t, w.tr, "a", "p1", "p2")
	op := w.operator(t, client)
	admintest.Register(t, w.tr, process.Relay, process.Report{
		InFlight: 1, Leases: []process.Lease{{Slot: 1, Lease: "-1.5", Events: 2, Since: time.Now()}}, Counts: map[string]int64{"sent": 3},
	})
	admintest.Register(t, w.tr, process.Consumer, process.Report{Stream: admintest.Hostile, Group: "g", Holding: 1, Partitions: []string{"{pt0}:orders"}})
	admintest.Register(t, w.tr, process.Trigger, process.Report{Trigger: &process.TriggerReport{Function: "mail", LastError: admintest.Hostile, LastErrorAt: time.Now()}})
	var counted history.Counter
	counted.Add(admintest.Hostile, settle.Retry, admintest.Hostile)
	link.Of(w.tr).History.End(ctx, &counted)
	timers, err := expiry.New(w.tr, expiry.Config{})
	redistest.Must(t, err, timers.Record(ctx, "t1", time.Now()), timers.Record(ctx, "t2", time.Now().Add(time.Hour)), timers.Record(ctx, admintest.Hostile, time.Now()))
	_, err = timers.Revoke(ctx, "t2", nil)
	redistest.Must(t, err)
	w.slot, err = op.Outbox().Slot("a")
	redistest.Must(t, err)
	for l, err := range op.DeadLetters(w.stream).List(ctx, admin.DeadLetterFilter{}) {
		redistest.Must(t, err)
		w.letter = l.ID
	}
	_, err = op.Outbox().Erase(ctx, w.slot, "asked for", "6")
	redistest.Must(t, err)
	redistest.Must(t, client.HSet(ctx, link.Of(w.tr).Scripts.Shard(w.slot).Key("attempts"), "orphan", "1").Err())
	return w
}

func (w ward) operator(t testing.TB, client redis.UniversalClient) *admin.Operator {
	t.Helper()
	op, err := admin.NewOperator(w.tr, admin.OperatorConfig{Client: client, Name: "alice"})
	redistest.Must(t, err)
	return op
}

// try is a request that the contract is tried with.
type try struct {
	query, body string
	want        int
}

// tries are some for each route.
func (w ward) tries() map[string][]try {
	s, at, body := strconv.Itoa(w.slot), "stream="+url.QueryEscape(w.stream), `{"stream":`+strconv.Quote(w.stream)+`,"reason":"r",`
	id := url.QueryEscape(admintest.Hostile)
	return map[string][]try{
		"GET /livez":            {{want: 200}},
		"GET /readyz":           {{want: 200}},
		"GET /api/openapi.json": {{want: 200}},
		"GET /api/stats":        {{want: 200}, {query: "x=1", want: 400}},
		"GET /api/history": {
			{want: 200},
			{query: "since=24h&until=1h&step=1h", want: 200},
			{query: "since=30m&step=1m", want: 200},
			{query: "since=03:00", want: 200},
			{query: "since=2000-01-01", want: 200},
			{query: "since=soon", want: 400},
			{query: "until=%00", want: 400},
			{query: "step=-1s", want: 400},
			{query: "step=1000h", want: 400},
			{query: "since=1h&until=2h", want: 400},
			{query: "since=2199-01-01", want: 400},
			{query: "until=2000-01-01", want: 200},
			{query: "slot=1", want: 400},
		},
		"GET /api/blocked": {
			{want: 200},
			{query: "limit=1&key=k&class=odd&slot=" + s, want: 200},
			{query: "limit=0", want: 400},
			{query: "slot=1", want: 422},
			{query: "cursor=%21", want: 400},
		},
		"GET /api/parked": {
			{want: 200},
			{query: "limit=2", want: 200},
			{query: "class=http_422&type=sold&destination=bank&text=script&older_than=0s&aggregate=a", want: 200},
			{query: "id=1&id=" + id + "&slot=" + s, want: 200},
			{query: "limit=0", want: 400},
			{query: "slot=1", want: 422},
			{query: "cursor=%21", want: 400},
			{query: "older_than=soon", want: 400},
		},
		"GET /api/parked/export": {{want: 200}, {query: "slot=1", want: 422}},
		"GET /api/event": {
			{query: "slot=" + s + "&id=" + id, want: 200},
			{query: "slot=" + s + "&id=" + id + "&payload=1", want: 200},
			{query: "slot=" + s + "&id=6&payload=1", want: 200},
			{query: "slot=" + s + "&id=p1", want: 200},
			{query: "slot=" + s + "&id=nobody", want: 404},
			{query: "slot=1&id=1", want: 422},
			{query: "id=1", want: 400},
		},
		"GET /api/find": {{query: "id=1&payload=1", want: 200}, {query: "id=nobody", want: 200}, {want: 400}},
		"POST /api/parked/rearm": {
			{body: `{"events":[{"slot":` + s + `,"id":"1"},{"slot":` + s + `,"id":"6"}]}`, want: 200},
			{body: `{"all":true,"dry_run":true}`, want: 200},
			{body: `{"filter":{"class":"none"},"canary":5,"rate":10,"max_parked_again":-1}`, want: 202},
			{body: `{}`, want: 422},
			{body: `{"filter":{}}`, want: 422},
			{body: `{"events":[{"slot":1,"id":"1"}]}`, want: 422},
			{body: `{"all":true,"canary":-1}`, want: 422},
			{body: `{"all":true,"canary_wait_seconds":-1}`, want: 400},
			{body: `{"events":[{"slot":` + s + `,"id":"1"}],"canary":1}`, want: 422},
			{body: `{"events":[{"slot":` + s + `,"id":""}]}`, want: 422},
			{body: `{"filter":{"kind":"x"}}`, want: 400},
			{body: `{"filter":{"slots":[1]}}`, want: 422},
			{body: `{"filter":{"events":[{"slot":1,"id":"1"}]},"canary":1}`, want: 422},
			{body: `{"filter":{"older_than_seconds":-1}}`, want: 422},
			{body: ``, want: 400},
			{body: `{"all":true}{}`, want: 400},
			{body: "\xff", want: 400},
		},
		"POST /api/parked/discard": {
			{body: `{"events":[{"slot":` + s + `,"id":"2"}],"reason":"r"}`, want: 200},
			{body: `{"filter":{"class":"none"},"reason":"r"}`, want: 202},
			{body: `{"all":true}`, want: 422},
			{body: `{"reason":"r"}`, want: 422},
			{body: `{"all":true,"reason":"r","limit":-1}`, want: 400},
			{body: `{"all":true,"reason":"r","dry_run":true}`, want: 200},
			{body: `{"events":[{"slot":` + s + `,"id":"2"}],"reason":"r","dry_run":true}`, want: 422},
		},
		"POST /api/events/erase": {{body: `{"events":[{"slot":` + s + `,"id":"3"}],"reason":"r"}`, want: 200}, {body: `{"reason":"r"}`, want: 422}},
		"GET /api/dead": {
			{query: at, want: 200},
			{query: at + "&text=script&group=g&type=sold&since=24h&limit=1", want: 200},
			{query: at + "&id=1-1", want: 200},
			{query: at + "&id=-", want: 422},
			{query: at + "&cursor=x", want: 422},
			{query: at + "&since=soon", want: 400},
			{query: at + "&limit=0", want: 400},
			{query: "stream=nobody", want: 404},
			{want: 400},
		},
		"GET /api/dead/letter": {
			{query: at + "&id=" + w.letter, want: 200},
			{query: at + "&payload=1&id=" + w.letter, want: 200},
			{query: at + "&id=1-1", want: 404},
			{query: at, want: 422},
		},
		"GET /api/dead/export": {{query: at, want: 200}, {query: "stream=nobody", want: 404}, {want: 400}},
		"POST /api/dead/import": {
			{body: body + `"letters":[{"stream":` + strconv.Quote(w.stream) + `,"id":"1-1","fields":["a","b"]}]}`, want: 200},
			{body: body + `"letters":[{"stream":"other","fields":["a","b"]}]}`, want: 422},
			{body: `{"stream":` + strconv.Quote(w.stream) + `,"letters":[],"dry_run":true}`, want: 200},
			{body: `{"stream":"x","letters":[]}`, want: 422},
		},
		"POST /api/dead/retry": {
			{body: body + `"all":true,"dry_run":true}`, want: 200},
			{body: body + `"filter":{"text":"none"},"canary":1}`, want: 202},
			{body: body + `"filter":{"ids":["-"]}}`, want: 422},
			{body: body + `"filter":{"since_seconds":-1}}`, want: 400},
			{body: body + `"filter":{}}`, want: 422},
			{body: body + `"all":true,"canary":-1}`, want: 422},
			{body: body + `"all":true,"canary_wait_seconds":-1}`, want: 400},
			{body: `{"stream":"nobody","reason":"r","all":true,"dry_run":true}`, want: 404},
			{body: `{"stream":"x","all":true}`, want: 422},
			{body: `{"reason":"r","all":true}`, want: 400},
		},
		"POST /api/dead/discard": {
			{body: body + `"filter":{"group":"g"},"dry_run":true}`, want: 200},
			{body: body + `"filter":{"group":"none","since_seconds":60}}`, want: 202},
			{body: body + `"limit":-1,"all":true}`, want: 422},
			{body: `{"stream":"x","all":true}`, want: 422},
		},
		"GET /api/events": {
			{want: 200},
			{query: "state=waiting&limit=1&key=k", want: 200},
			{query: "state=parked&limit=2&class=http_422&slot=" + s, want: 200},
			{query: "state=lost", want: 400},
			{query: "slot=1", want: 422},
			{query: "cursor=%21", want: 400},
		},
		"POST /api/events/retry":         w.changes("p1", ""),
		"POST /api/events/reschedule":    w.changes("p1", `,"at":"2100-01-01T00:00:00Z"`),
		"POST /api/events/cancel":        w.changes("p1", ""),
		"POST /api/events/park":          w.changes("p2", ""),
		"POST /api/events/discard":       w.changes("p2", ""),
		"GET /api/operations":            {{want: 200}},
		"GET /api/operations/{id}":       {{want: 404}},
		"POST /api/operations/{id}/stop": {{body: `{}`, want: 404}},
		"GET /api/inbox": {
			{query: "aggregate=a&handler=h&id=1&source=s", want: 200},
			{query: "aggregate=a&scope=h&id=1&source=", want: 200},
			{query: "aggregate=a&scope=h&id=1", want: 400},
			{query: "aggregate=a&id=1&source=", want: 400},
			{query: "aggregate=&scope=h&id=1&source=", want: 422},
		},
		"POST /api/inbox/forget": {
			{body: `{"aggregate":"a","handler":"h","id":"1","source":"","reason":"r"}`, want: 200},
			{body: `{"aggregate":"a","handler":"h","id":"1","source":""}`, want: 422},
			{body: `{"aggregate":"a","handler":"h","id":"1","reason":"r"}`, want: 400},
		},
		"POST /api/destinations/pause": {
			{body: `{"destination":"bank","reason":"r","for_seconds":3600}`, want: 200},
			{body: `{"destination":"shop","reason":"r"}`, want: 200},
			{body: `{"destination":"bank"}`, want: 422},
			{body: `{"destination":"","reason":"r"}`, want: 422},
			{body: `{"destination":"bank","reason":"r","for_seconds":-1}`, want: 400},
		},
		"GET /api/destinations":         {{want: 200}},
		"POST /api/destinations/resume": {{body: `{"destination":"bank"}`, want: 200}, {body: `{}`, want: 400}},
		"GET /api/timers": {
			{want: 200},
			{query: "decided=1&text=t&limit=1&slot=" + s, want: 200},
			{query: "due=1", want: 200},
			{query: "cursor=%21", want: 422},
			{query: "due=x", want: 400},
			{query: "slot=x", want: 400},
			{query: "slot=1", want: 422},
		},
		"GET /api/timer":     {{query: "subject=t1", want: 200}, {query: "subject=nobody", want: 404}, {want: 400}},
		"GET /api/processes": {{want: 200}, {query: "kind=relay&kind=trigger", want: 200}, {query: "kind=x", want: 400}},
		"GET /api/streams":   {{want: 200}, {query: "key=none&key=" + url.QueryEscape(w.stream), want: 200}},
		"GET /api/drain":     {{want: 200}, {query: "key=none", want: 200}},
		"GET /api/audit":     {{want: 200}, {query: "since=1h&limit=1", want: 200}, {query: "since=x", want: 400}},
		"GET /api/check":     {{want: 200}, {query: "slot=" + s, want: 200}, {query: "slot=1", want: 422}},
		"POST /api/fix":      {{body: `{}`, want: 202}, {body: `{"slots":[1]}`, want: 422}},
		"GET /api/doctor":    {{want: 200}, {query: "role=relay", want: 200}, {query: "role=service", want: 200}, {query: "role=x", want: 400}},
	}
}

// changes are some requests to change events.
func (w ward) changes(id, more string) []try {
	events := `"events":[{"slot":` + strconv.Itoa(w.slot) + `,"id":"` + id + `"}]`
	return []try{
		{body: `{` + events + `,"reason":"r"` + more + `}`, want: 200},
		{body: `{"state":"pending","filter":{"class":"none"},"reason":"r"` + more + `}`, want: 202},
		{body: `{"all":true,"dry_run":true,"reason":"r"` + more + `}`, want: 200},
		{body: `{` + events + more + `}`, want: 422},
		{body: `{"reason":"r"` + more + `}`, want: 422},
		{body: `{` + events + `,"state":"pending","reason":"r"` + more + `}`, want: 422},
		{body: `{"state":"lost","all":true,"reason":"r"` + more + `}`, want: 400},
		{body: `{"all":true,"limit":-1,"reason":"r"` + more + `}`, want: 400},
		{body: `{"all":true,"at":"soon","reason":"r"}`, want: 400},
	}
}

// of returns the description of a route.
func (d document) of(route string) (action, bool) {
	method, path, _ := strings.Cut(route, " ")
	found, ok := d.Paths[path][strings.ToLower(method)]
	return found, ok
}

func TestHandlerAndOpenAPIDescribeTheSameRoutesFieldsAndReplies(t *testing.T) {
	t.Parallel()
	doc := described(t)
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		w := newWard(t, client, httpapi.Config{MaxOperations: 50})
		admintest.Block(t, w.tr, "a", "k", "head", "behind")
		routes, tries := w.handler.Routes(), w.tries()
		described := 0
		for _, actions := range doc.Paths {
			described += len(actions)
		}
		if described != len(routes) || len(tries) != len(routes) {
			t.Fatalf("%d routes, %d of them described, %d tried", len(routes), described, len(tries))
		}
		for _, route := range slices.Sorted(maps.Keys(tries)) {
			about, ok := doc.of(route)
			access, is := routes[route]
			if !ok || !is || about.Access != strings.TrimSuffix(access.String(), "nothing") {
				t.Errorf("%s: described: %v as %q, is: %v as %q", route, ok, about.Access, is, access)
				continue
			}
			hit := map[string]bool{}
			for _, try := range tries[route] {
				reply := w.ask(t, route, try)
				if reply.Code != try.want {
					t.Errorf("%s?%s %s: status %d, want %d: %s", route, try.query, try.body, reply.Code, try.want, reply.Body)
				}
				status := strconv.Itoa(reply.Code)
				hit[status] = true
				if err := doc.fits(about, status, reply); err != nil {
					t.Errorf("%s?%s %s: %v\n%s", route, try.query, try.body, err, reply.Body)
				}
			}
			for status := range about.Responses {
				if status < "300" && !hit[status] && !strings.Contains(route, "{id}") { // operated sees to those
					t.Errorf("%s: no request returned %s", route, status)
				}
			}
			w.accepts(t, doc, route, about)
		}
		w.operated(t, doc)
	})
}

// ask sends a request to a route.
func (w ward) ask(t testing.TB, route string, try try) *httptest.ResponseRecorder {
	t.Helper()
	method, path, _ := strings.Cut(route, " ")
	return answer(w.handler, asked(t, method, strings.ReplaceAll(path, "{id}", "x")+"?"+try.query, try.body))
}

// fits compares a response with its description.
func (d document) fits(about action, status string, reply *httptest.ResponseRecorder) error {
	found, ok := about.Responses[status]
	if !ok {
		return fmt.Errorf("status %s is not described", status)
	}
	kind := reply.Header().Get("Content-Type")
	content, ok := d.response(found).Content[kind]
	if !ok {
		return fmt.Errorf("status %s in %q is not described", status, kind)
	}
	if kind == "application/x-ndjson" {
		return nil
	}
	if strings.Contains(reply.Body.String(), "<") {
		return errors.New("markup is not escaped")
	}
	var value any
	if err := json.Unmarshal(reply.Body.Bytes(), &value); err != nil {
		return err
	}
	return d.unfit(content.Schema, "response", value)
}

// accepts holds that a route knows the parameters and fields that are described, and no others.
func (w ward) accepts(t *testing.T, doc document, route string, about action) {
	t.Helper()
	detail := func(try try) string {
		var p struct{ Detail string }
		_ = json.Unmarshal(w.ask(t, route, try).Body.Bytes(), &p) // an export is no object
		return p.Detail
	}
	if about.RequestBody == nil {
		for _, p := range about.Parameters {
			if got := detail(try{query: p.Name + "=!"}); p.In == "query" && strings.Contains(got, "is unknown; this route accepts") {
				t.Errorf("%s rejects the described %s: %s", route, p.Name, got)
			}
		}
		if got := detail(try{query: "undescribed=1"}); strings.HasPrefix(route, "GET /api/") && !strings.HasSuffix(route, "openapi.json") && !strings.Contains(got, "is unknown; this route accepts") {
			t.Errorf("%s accepts an undescribed parameter: %s", route, got)
		}
		return
	}
	of := doc.resolve(about.RequestBody.Content["application/json"].Schema)
	for name := range of.Properties {
		if got := detail(try{body: `{"` + name + `":[[]]}`}); strings.Contains(got, "unknown field") {
			t.Errorf("%s rejects the described %s: %s", route, name, got)
		}
	}
	if got := detail(try{body: `{"undescribed":1}`}); !strings.Contains(got, "unknown field") {
		t.Errorf("%s accepts an undescribed field: %s", route, got)
	}
}

// operated holds that operations are described, in whatever state they are.
func (w ward) operated(t *testing.T, doc document) {
	t.Helper()
	about, _ := doc.of("GET /api/operations/{id}")
	stop, _ := doc.of("POST /api/operations/{id}/stop")
	var list struct {
		Operations []struct{ ID, Kind string }
	}
	redistest.Must(t, json.Unmarshal(w.ask(t, "GET /api/operations", try{}).Body.Bytes(), &list))
	kinds := map[string]bool{}
	for _, o := range list.Operations {
		kinds[o.Kind] = true
		path := "/api/operations/" + o.ID
		redistest.Eventually(t, "the operation to end", func() bool {
			reply := answer(w.handler, asked(t, http.MethodGet, path, ""))
			if err := doc.fits(about, strconv.Itoa(reply.Code), reply); err != nil {
				t.Fatal(err)
			}
			return !strings.Contains(reply.Body.String(), `"running":true`)
		})
		reply := answer(w.handler, asked(t, http.MethodPost, path+"/stop", "{}"))
		if err := doc.fits(stop, "200", reply); reply.Code != http.StatusOK || err != nil {
			t.Errorf("stop: %d %s: %v", reply.Code, reply.Body, err)
		}
	}
	if len(kinds) != 7 {
		t.Errorf("kinds of operations: %v", kinds)
	}
}

func TestRoutesAndPagesRejectSendersWithoutTheRight(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	var may httpapi.Access
	w := newWard(t, client, httpapi.Config{Authorize: func(*http.Request) (httpapi.Identity, error) {
		return httpapi.Identity{Name: "bob", May: may, Payloads: true}, nil
	}})
	all := w.handler.Routes()
	maps.Copy(all, pagesOf(t, w.handler))
	for route, needs := range all {
		for may = httpapi.MayNothing; may <= httpapi.MayPurge; may++ {
			reply := w.ask(t, route, try{body: `{"wrong":1}`})
			if refused := reply.Code == http.StatusForbidden; refused != (may < needs) {
				t.Errorf("%s needs the right %s, but a sender with the right %s gets %d %s", route, needs, may, reply.Code, reply.Body)
			}
		}
	}
	if n := len(all); n < 30 {
		t.Errorf("%d routes", n)
	}
}

func TestGetChangesNothingExceptTheAuditOfPayloads(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	client := redistest.Shared(t).Client(t)
	w := newWard(t, client, httpapi.Config{})
	ctx, ours := redistest.Soon(t), w.tr.Config().Namespace+"*"
	before, err := redistest.Dump(ctx, client, ours)
	redistest.Must(t, err)
	for route, tries := range w.tries() {
		method, path, _ := strings.Cut(route, " ")
		for _, try := range tries {
			switch {
			case strings.Contains(try.query, "payload=1") || strings.HasSuffix(path, "/export"):
				continue
			case method == http.MethodGet:
				w.ask(t, route, try)
				continue
			}
			r := asked(t, http.MethodGet, path, try.body)
			r.Header.Set("Content-Type", "application/json")
			answer(w.handler, r)
		}
	}
	after, err := redistest.Dump(ctx, client, ours)
	redistest.Must(t, err)
	if diff := redistest.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}
