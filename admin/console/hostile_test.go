package console_test

import (
	"errors"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
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
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/process"
	"github.com/luatx/luatx/internal/settle"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/relay"
	"github.com/luatx/luatx/stream"
)

// hostileText returns a text that would run code if a page did not escape it. The source distinguishes it from other texts.
func hostileText(source string) string { return `"'><img/src=x/onerror=pwned(` + source + `)>` }

// showsHostile reports whether a page shows the text of a source, escaped or not.
func showsHostile(page, source string) bool {
	return strings.Contains(html.UnescapeString(page), "onerror=pwned("+source+")")
}

// hostileService is a service in which each text from outside is admintest.Hostile.
type hostileService struct {
	tr     *luatx.Transactor
	op     *admin.Operator
	client redis.UniversalClient
	site   *site
	slot   int
	stream string
}

func newHostileService(t *testing.T) hostileService {
	t.Helper()
	client := redistest.Shared(t).Client(t)
	w := hostileService{client: client, stream: "{" + redistest.Tag(t) + "}" + hostileText("stream")}
	w.tr, w.op = admintest.Service(t, client, 4)
	var err error
	w.slot, err = strconv.Atoi(slotText(t, w.tr, "a"))
	redistest.Must(t, err)
	other := "b"
	for n := 0; slotText(t, w.tr, other) == slotText(t, w.tr, "a"); n++ {
		other = "b" + strconv.Itoa(n)
	}
	w.park(t, hostileText("id"), hostileText("key"), "class")
	_, err = w.tr.Enqueue(redistest.Soon(t), "a", luatx.Event{
		ID: "waits", Key: hostileText("key"), Body: []byte(`{"specversion":"1.0","id":"waits","type":"sold","source":"/shop"}`),
	})
	redistest.Must(t, err)
	for id, class := range map[string]string{"1": "class", "2": "class", "3": "unwanted", "4": "retried", "5": "retried"} {
		w.park(t, id, "", class)
	}
	member := strconv.Quote(hostileText("member"))
	w.parkEvent(t, luatx.Event{ID: "undecodable", Body: []byte("{" + member + ":1," + member + ":2}")}, "undecodable")
	enqueue(t, w.tr, other, hostileText("id"), "sold", hostileText("elsewhere"), `{}`)

	ctx, shard := redistest.Soon(t), link.Of(w.tr).Scripts.Shard(w.slot)
	redistest.Must(t, w.op.As(hostileText("pauser")).Pause(ctx, hostileText("paused"), hostileText("pause reason"), time.Time{}))
	redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: shard.Key("audit"), Values: []string{
		"operation", hostileText("operation"), "who", hostileText("recorded who"), "act", hostileText("act"), "why", hostileText("recorded why"),
	}}).Err())
	redistest.Must(t, client.HSet(ctx, shard.Key("attempts"), hostileText("orphan"), "1").Err())
	digest := identity.ID{Aggregate: "a", Scope: hostileText("scope"), Source: hostileText("source"), ID: hostileText("message")}.Sum().Digest()
	redistest.Must(t, client.HSet(ctx, shard.Key("inbox:b"), digest, "x").Err())
	redistest.Must(t, client.HSet(ctx, shard.Key("broken"), digest, hostileText("left")).Err())

	redistest.Must(t, client.XGroupCreateMkStream(ctx, w.stream, hostileText("group"), "0").Err())
	reading := &redis.XReadGroupArgs{
		Group: hostileText("group"), Consumer: hostileText("consumer"), Streams: []string{w.stream, "0"}, // creates the consumer
	}
	redistest.Must(t, client.XReadGroup(ctx, reading).Err())
	redistest.Must(t, client.Set(ctx, w.stream+hostileText("string"), "no stream", 0).Err())
	redistest.Must(t, client.XAdd(ctx, &redis.XAddArgs{Stream: stream.DeadLetterKey(w.stream), ID: "1-1", Values: []string{
		"dead-reason", hostileText("dead reason"), "dead-stream", w.stream, "dead-entry", hostileText("entry"), "dead-group", hostileText("dead group"),
		"dead-consumer", hostileText("dead consumer"), "dead-deliveries", "1", "dead-first", "1", "dead-last", "1",
		"ce_specversion", "1.0", "ce_type", hostileText("dead type"), "ce_subject", hostileText("subject"), "data", hostileText("dead data"),
	}}).Err())
	w.site = newSite(t, w.op, func(cfg *httpapi.Config) {
		cfg.Title, cfg.Streams = hostileText("title"), []string{w.stream, w.stream + hostileText("string")}
		cfg.Authorize = func(*http.Request) (httpapi.Identity, error) {
			return httpapi.Identity{Name: hostileText("who"), May: httpapi.MayPurge, Payloads: true}, nil
		}
	})
	return w
}

// park parks an event of the aggregate a whose other texts are admintest.Hostile.
func (w *hostileService) park(t *testing.T, id, key, class string) {
	t.Helper()
	body, err := message.NewTyped([]byte(hostileText("data")), message.Attributes{
		"specversion": "1.0", "id": id, "type": hostileText("type"), "source": "/shop", "destination": hostileText("destination"),
		"datacontenttype": "text/plain", hostileText("name"): hostileText("attribute"),
	}, nil).MarshalJSON()
	redistest.Must(t, err)
	w.parkEvent(t, luatx.Event{ID: id, Key: key, Body: body}, class)
}

func (w *hostileService) parkEvent(t *testing.T, e luatx.Event, class string) {
	t.Helper()
	admintest.ParkEvent(t, w.tr, "a", e, hostileText(class), hostileText("error"))
}

// hostileNames are the names of sources in an address, each between two tildes.
var hostileNames = regexp.MustCompile(`~([^~]+)~`)

// get reads a page. Names between tildes stand for admintest.Hostile texts. The request's Host header is admintest.Hostile.
func (w *hostileService) get(t *testing.T, to string) (status int, page string) {
	t.Helper()
	to = hostileNames.ReplaceAllStringFunc(to, func(name string) string { return url.QueryEscape(hostileText(strings.Trim(name, "~"))) })
	if !strings.HasPrefix(to, sitePrefix) {
		to = sitePrefix + to
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	r.Header.Set("Accept", "text/html")
	r.Host = hostileText("host")
	reply := w.site.ask(t, r)
	return reply.Code, reply.Body.String()
}

// work confirms a previewed operation with more fields of its form, waits for its end and returns its address.
func (w *hostileService) work(t *testing.T, act, query string, more url.Values) string {
	t.Helper()
	_, page := w.get(t, "preview-"+act+"?"+query)
	location := ""
	for range 2 { // a changed setting needs a second preview
		form := formOf(page, `action="./`+act+`"`)
		maps.Copy(form, more)
		if _, page, location = w.site.post(t, act, form); location != "" {
			break
		}
	}
	if location == "" {
		t.Fatalf("%s did not start:\n%s", act, page)
	}
	redistest.Eventually(t, act+" to end", func() bool {
		_, page := w.get(t, location)
		return !strings.Contains(page, "<strong>running</strong>")
	})
	return location
}

// TestConsoleEscapesEveryTextFromOutside lists the texts from outside that each page shows.
func TestConsoleEscapesEveryTextFromOutside(t *testing.T) {
	t.Parallel()
	w := newHostileService(t)
	event := "slot=" + strconv.Itoa(w.slot) + "&id=~id~"
	inbox := "inbox?aggregate=a&scope=~scope~&source=~source~&id=~message~"
	filter := "class=~class~&destination=~destination~&type=~type~&key=~key~&text=~error~"
	of := "?stream=" + url.QueryEscape(w.stream)
	dead := "dead" + of
	unseen := maps.Clone(w.site.pages)
	shown := func(to string, sources ...string) {
		t.Helper()
		asked, _, _ := strings.Cut(strings.TrimPrefix(to, sitePrefix), "?")
		delete(unseen, "GET /"+asked)
		status, page := w.get(t, to)
		if found := foreign(page); found != "" || strings.Contains(page, "<img") {
			t.Errorf("%s (status %d) contains unescaped markup %q:\n%s", to, status, found, page)
		}
		sources = append(sources, "title", "who")
		if missing := slices.DeleteFunc(sources, func(source string) bool { return showsHostile(page, source) }); len(missing) > 0 {
			t.Errorf("%s (status %d) does not show the texts of the sources %q:\n%s", to, status, missing, page)
		}
	}
	admintest.Register(t, w.tr, process.Consumer, process.Report{
		Stream: hostileText("read"), Group: hostileText("reading group"), Consumer: hostileText("reader"),
	})
	admintest.Register(t, w.tr, process.Trigger, process.Report{Trigger: &process.TriggerReport{
		Function: hostileText("function"), State: hostileText("state"), LastError: hostileText("last error"),
	}})
	timers, err := expiry.New(w.tr, expiry.Config{})
	redistest.Must(t, err, timers.Record(redistest.Soon(t), hostileText("timer"), time.Now().Add(time.Hour)))
	var counted history.Counter
	counted.Add(hostileText("told"), settle.Retry, hostileText("why"))
	link.Of(w.tr).History.End(redistest.Soon(t), &counted)
	for to, sources := range map[string][]string{
		"history?range=day":             {"told", "why"},
		"history?range=~range~":         {"range"},
		"history?at=~at~":               {"at"},
		"timers":                        {"timer"},
		"timers?text=~timer~":           {"timer"},
		"processes":                     {"read", "reading group", "reader", "function", "state", "last error"},
		"":                              {"class", "destination", "type", "paused", "pauser", "pause reason"},
		"parked":                        {"class", "destination", "type", "key", "id", "error"},
		"parked?" + filter:              {"class", "destination", "type", "key", "id", "error"},
		"parked?aggregate=~aggregate~":  {"aggregate"},
		"parked?text=~nothing says so~": {"nothing says so"},
		"event?id=~id~":                 {"id", "destination", "elsewhere"},
		"event?id=~nobody~":             {"nobody"},
		"event?slot=" + strconv.Itoa(w.slot) + "&id=undecodable&body=1": {"member"},
		"event?" + event + "&body=1":                                    {"id", "destination", "key", "class", "error", "name", "attribute", "data", "host"},
		"preview-rearm?" + filter + "&to=~to~":                          {"class", "destination", "type", "key", "error", "to", "host"},
		"preview-discard?" + filter + "&reason=~to reason~":             {"class", "destination", "type", "key", "error", "to reason", "host"},
		"preview-rearm?event=" + strconv.Itoa(w.slot) + ":~id~":         {"id", "host"},
		"preview-rearm?event=~no event~":                                {"no event"},
		"preview-rearm?rate=~rate~":                                     {"rate"},
		"parked?older_than=~age~":                                       {"age"},
		"streams":                                                       {"stream", "group", "consumer", "string"},
		"streams?key=~asked~":                                           {"asked"},
		inbox:                                                           {"scope", "source", "message", "left"},
		"audit?since=all":                                               {"operation", "recorded who", "act", "recorded why", "pauser", "pause reason"},
		"doctor?check=1":                                                {"orphan", "left"},
		"dead":                                                          nil,
		"dead?stream=~no stream~":                                       {"no stream"},
		dead:                                                            {"stream", "dead reason", "dead group", "dead type"},
		dead + "&text=~no text~":                                        {"no text"},
		"letter" + of + "&id=1-1&body=1":                                {"stream", "entry", "dead reason", "dead group", "dead consumer", "dead type", "subject", "dead data", "host"},
		"letter" + of + "&id=~no id~":                                   {"no id"},
		"import-dead" + of:                                              {"stream"},
		"preview-retry-dead" + of + "&since=~no time~":                  {"no time"},
		"preview-retry-dead" + of + "&group=~dead group~":               {"stream", "dead group", "host"},
		"preview-discard-dead" + of + "&reason=~gone~&id=1-1":           {"stream", "gone", "dead group"},
		"blocked":                                     {"class", "destination", "key", "id", "error"},
		"blocked?key=~nobody~":                        {"nobody"},
		"events?state=parked":                         {"class", "destination", "type", "key", "id", "error"},
		"events?state=parked&" + filter:               {"class", "destination", "type", "key", "id", "error"},
		"events?state=waiting":                        {"key", "id"},
		"events?state=~state~":                        {"state"},
		"preview-events-retry?state=parked&" + filter: {"class", "destination", "type", "key", "error"},
		"preview-events-reschedule?at=~at~":           {"at"},
		"preview-events-cancel?state=parked&class=~class~&reason=~to reason~":      {"class", "to reason"},
		"preview-events-park?state=parked&event=" + strconv.Itoa(w.slot) + ":~id~": {"id"},
		"preview-events-discard?state=parked&destination=~destination~":            {"destination"},
		"help":              nil,
		"operations":        nil,
		"operations/nobody": nil,
	} {
		shown(to, sources...)
	}

	discard := w.work(t, "discard", "class=~unwanted~", url.Values{"reason": {hostileText("discard reason")}, "sure": {"yes"}})
	shown(discard, "discard reason", "unwanted")
	gone := w.work(t, "discard-dead", of[1:], url.Values{"reason": {hostileText("dead discard")}, "sure": {"yes"}})
	shown(gone, "stream", "dead discard")
	stop := admintest.Relay(t, w.tr, func(*message.RawMessage) error {
		return relay.Classify(hostileText("relay-class"), message.Permanent(errors.New(hostileText("relay error"))))
	})
	shown(w.work(t, "rearm", "class=~retried~", url.Values{"canary": {"1"}, "canary_wait": {"5m"}}), "retried", "relay-class")
	stop()
	_, _, fix := w.site.post(t, "fix", nil)
	redistest.Eventually(t, "the fix to end", func() bool { _, page := w.get(t, fix); return strings.Contains(page, "<strong>done</strong>") })
	shown(fix, "orphan", "left")
	w.site.post(t, "forget", url.Values{
		"aggregate": {"a"}, "scope": {hostileText("scope")}, "source": {hostileText("source")}, "id": {hostileText("message")}, "sure": {"yes"}, "reason": {hostileText("forget reason")},
	})
	shown("operations", "discard reason", "retried")
	shown("audit", "discard reason", "forget reason")

	redistest.Must(t, w.client.HSet(redistest.Soon(t), link.Of(w.tr).Scripts.Shard(w.slot).Key("inbox:a"), "id", strings.Repeat("0", 40)+hostileText("identity")).Err())
	shown(inbox, "identity")
	shown("doctor", "identity")
	shown(w.work(t, "discard", "class=~class~", url.Values{"reason": {"r"}, "sure": {"yes"}}), "identity")
	for page := range unseen {
		if strings.HasPrefix(page, "GET ") && !strings.Contains(page, "{id}") {
			t.Errorf("page %s is missing from this test", page)
		}
	}
}
