package browsertest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/console"
	"github.com/luatx/luatx/admin/httpapi"
	"github.com/luatx/luatx/admin/internal/admintest"
	"github.com/luatx/luatx/internal/test/redistest"
)

// incident is a service in trouble: events in all states, dead letters, blocked ordering keys, and three relays of which one was killed.
type incident struct {
	client  redis.UniversalClient
	op      *admin.Operator
	addrs   []string
	stream  string
	victim  *exec.Cmd
	program string // luatx
	address string // of the console
}

// newIncident prepares the service at a server or a cluster. The killed relay has leased the events of a destination that does not
// respond.
func newIncident(t testing.TB, client redis.UniversalClient, addrs []string) *incident {
	t.Helper()
	tr, err := shop(client)
	redistest.Must(t, err)
	op, err := admin.NewOperator(tr, admin.OperatorConfig{Client: client, Name: "ada"})
	redistest.Must(t, err)
	i := &incident{client: client, op: op, addrs: addrs, stream: "{" + tr.Keyspace().Tags()[0] + "}:orders"}
	for n := range 5 {
		body := fmt.Appendf(nil, `{"specversion":"1.0","id":"slow-%d","type":"order.paid","source":"/shop/orders","destination":%q}`, n, slow)
		_, err := tr.Enqueue(redistest.Soon(t), "order-1", luatx.Event{ID: fmt.Sprint("slow-", n), Body: body})
		redistest.Must(t, err)
	}
	events, letters := 2000, 100
	if os.Getenv("LUATX_VERIFY") != "" {
		events, letters = 10_000, 1000
	}
	load := admintest.LoadOf(events)
	load.Parked, load.Due = load.Parked+load.Due, 0 // the relays publish due events at once
	admintest.Fill(t, tr, load)
	i.victim = startRelay(t, addrs)
	admintest.DeadLetters(t, client, i.stream, "billing", "no such bank", letters)
	i.program = filepath.Join(t.TempDir(), "luatx")
	build := exec.Command("go", "build", "-o", i.program, "./cmd/luatx")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	i.serve(t)
	i.kill(t)
	return i
}

// kill kills the first relay when it has reported its leases, and starts the two others.
func (i *incident) kill(t testing.TB) {
	t.Helper()
	redistest.Eventually(t, "the report of the leases", func() bool {
		for p, err := range i.op.Processes(t.Context(), "relay") {
			if err != nil || len(p.Leases) > 0 {
				return err == nil
			}
		}
		return false
	})
	redistest.Must(t, i.victim.Process.Kill())
	startRelay(t, i.addrs)
	startRelay(t, i.addrs)
}

// serve serves the console to ada, who may do everything, and below /view/ to eve, who may look but see no payload.
func (i *incident) serve(t testing.TB) {
	t.Helper()
	mux := http.NewServeMux()
	for prefix, who := range map[string]httpapi.Identity{
		"/ops": {Name: "ada", May: httpapi.MayPurge, Payloads: true}, "/view": {Name: "eve", May: httpapi.MayView},
	} {
		h, err := httpapi.New(i.op, httpapi.Config{
			Console: console.New, Authorize: func(*http.Request) (httpapi.Identity, error) { return who, nil },
			Streams: []string{i.stream}, Logger: slog.New(slog.DiscardHandler),
		})
		redistest.Must(t, err)
		admintest.Running(t, h.Run)
		mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.address = server.URL + "/ops/"
}

// luatx runs a command and returns its output.
func (i *incident) luatx(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.program, args...)
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+i.addrs[0], "LUATX_NAMESPACE=shop", "LUATX_KEYSPACE=partitions=16", "LUATX_PREFIX=order", "LUATX_OPERATOR=ada")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("luatx %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// click is a click on the first element of a selector that has a text, and a part of the address that it leads to.
type click struct{ selector, text, leads string }

// question is what an operator asks in an incident: the clicks from the overview that lead to the answer, parts of the answer, and the
// command that answers it with parts of its output.
type question struct {
	asks    string
	clicks  []click
	answer  []string
	command []string
	output  []string
}

// questions are those of docs/operations.md, except what happened last night: see history_test.go.
func (i *incident) questions() []question {
	class := func(name string) click { return click{"#reasons a", name, "class=" + name} }
	return []question{
		{
			asks: "which events are stuck, and since when?", answer: []string{"events are parked", "The first has been parked for", "held back behind parked ones"},
			command: []string{"stats", "--over", "0"}, output: []string{"OLDEST-UNPUBLISHED", "KEYS EVENTS SINCE", "http_503"},
		},
		{
			asks: "why?", clicks: []click{class("http_503"), {"main td a.id, main th a.id", "parked-bank", "event?"}},
			answer:  []string{"503 Service Unavailable", "http_503"},
			command: []string{"parked", "list", "--class", "http_503", "--limit", "1"}, output: []string{"http_503", "bank.example/v1/payments: 503"},
		},
		{
			asks: "what waits behind it?", clicks: []click{{"#verdict a", "See behind which", "/blocked"}},
			answer:  []string{"customer-", "Wait behind it", "50 keys"},
			command: []string{"blocked"}, output: []string{"HOLDS-BACK", "customer-7", "head-7-7-0"},
		},
		{
			asks: "is it safe to retry?", clicks: []click{class("http_503"), {"#rearm-all", "Re-arm all that match", "preview-rearm"}},
			answer:  []string{"at most these", "so that the receiver can recognize a duplicate", "bank"},
			command: []string{"parked", "rearm", "--class", "http_503", "--dry-run"}, output: []string{"MATCHED"},
		},
		{
			asks:    "retry 10 as a canary, then the rest",
			clicks:  []click{class("timeout"), {"#rearm-all", "Re-arm all that match", "preview-rearm"}, {"button[data-confirm]", "10 first", "/operations/"}},
			answer:  []string{"10 of 10", "done in"},
			command: []string{"parked", "rearm", "--class", "http_503", "--canary", "10", "--yes"}, output: []string{"MATCHED"},
		},
		{
			asks: "which dead letters are there, and why?", clicks: []click{{"nav.main a", "Dead letters", "/dead"}, {"main a.id", i.stream, "stream="}},
			answer:  []string{"no such bank", "billing"},
			command: []string{"dead", "list", i.stream, "--limit", "1"}, output: []string{"no such bank", "billing"},
		},
		{
			asks: "which processes are alive?", clicks: []click{{"nav.main a", "Processes", "/processes"}}, answer: []string{"dead", "alive"},
			command: []string{"processes", "relay"}, output: []string{"relay dead", "relay alive"},
		},
		{
			asks:    "which process held it?",
			clicks:  []click{{"nav.main a", "Events", "/events"}, {"ul.chips a", "leased", "state=leased"}, {"main a.id", "slow-0", "event?"}},
			answer:  []string{"Held by", "relay-", fmt.Sprint("pid ", i.victim.Process.Pid), "dead"},
			command: []string{"events", "show", "slow-0"}, output: []string{"held by", fmt.Sprint(i.victim.Process.Pid), "which is dead"},
		},
	}
}

// most is the most clicks from the overview to an answer.
const most = 3

// dies waits until the list of processes has the killed relay as dead.
func (i *incident) dies(t testing.TB) {
	t.Helper()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-ticker.C {
		for p, err := range i.op.Processes(t.Context(), "relay") {
			if redistest.Must(t, err); p.Dead && p.PID == i.victim.Process.Pid {
				return
			}
		}
	}
	t.Fatal("the killed relay is not reported as dead")
}

// ask answers a question in the browser and by the command.
func (i *incident) ask(b *tab, q question) (visited []string) {
	b.t.Helper()
	if len(q.clicks) > most {
		b.t.Errorf("%s %d clicks, want at most %d", q.asks, len(q.clicks), most)
	}
	b.open(i.address)
	for _, c := range q.clicks {
		b.click(c.selector, c.text)
		b.at(c.leads)
	}
	for _, part := range q.answer {
		b.until(q.asks+" "+part, fmt.Sprintf("document.querySelector('main')?.innerText.toLowerCase().includes(%q)", strings.ToLower(part)))
	}
	output := strings.Join(strings.Fields(i.luatx(b.t, q.command...)), " ")
	for _, part := range q.output {
		if !strings.Contains(output, part) {
			b.t.Errorf("%s luatx %s has no %q:\n%s", q.asks, strings.Join(q.command, " "), part, output)
		}
	}
	return append(visited, b.text("location.href"))
}

func TestEachQuestionOfAnIncidentTakesThreeClicksOrOneCommand(t *testing.T) {
	t.Parallel()
	if os.Getenv("CI") == "" && os.Getenv("LUATX_VERIFY") == "" {
		t.Skip("takes a minute: set LUATX_VERIFY=1")
	}
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		chromium(t)
		server := redistest.Single(t, redistest.Own())
		tour(t, newIncident(t, server.Client(t), []string{server.Addr()}), false)
	})
	t.Run("cluster without JavaScript", func(t *testing.T) {
		t.Parallel()
		chromium(t)
		cluster := redistest.Cluster(t)
		tour(t, newIncident(t, cluster.Client(t), cluster.Addrs()), true)
	})
}

func tour(t *testing.T, i *incident, plain bool) {
	t.Helper()
	i.dies(t)
	b := newBrowser(t)
	if plain {
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	}
	pages := []string{i.address}
	for _, q := range i.questions() {
		pages = append(pages, i.ask(b, q)...)
	}
	for _, page := range pages {
		b.look(360, false)
		b.open(page)
		b.fits(page, 360)
		b.look(1280, true)
		b.fits(page, 1280)
	}
	event := strings.Replace(pages[len(pages)-1], "/ops/", "/view/", 1)
	b.open(event)
	b.until("the lack of a right", `document.querySelector("#body").innerText.includes("need the right to read payloads")`)
	b.open(event + "&body=1")
	b.until("the refusal", `document.querySelector("main").innerText.includes("may not read payloads")`)
}

// fits checks that the page is no wider than the window, and that the next elements show that they have the focus.
func (b *tab) fits(page string, width int64) {
	b.t.Helper()
	if wide := b.text(`document.documentElement.scrollWidth > innerWidth && [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).pop()?.outerHTML`); wide != "false" {
		b.t.Errorf("%s is wider than %d px: %.300s", page, width, wide)
	}
	b.focusShows(page)
}

// focusShows moves the focus by the keyboard, and checks that it can be seen.
func (b *tab) focusShows(page string) {
	b.t.Helper()
	for range 4 {
		b.press(kb.Tab)
		if hidden := b.text(`(() => {
			const e = document.activeElement, style = getComputedStyle(e);
			return e !== document.body && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) ? e.outerHTML : "";
		})()`); hidden != "" {
			b.t.Errorf("%s: the focus cannot be seen: %.300s", page, hidden)
		}
	}
}
