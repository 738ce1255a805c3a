package console

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/outbox"
)

func TestPlanOfReadsFormAndRejectsInvalidFields(t *testing.T) {
	t.Parallel()
	usual := outbox.RearmOptions{Canary: -1, Rate: 500, MaxParkedAgain: 10, CanaryWait: 30 * time.Second}
	with := func(change func(*outbox.RearmOptions)) outbox.RearmOptions {
		opts := usual
		change(&opts)
		return opts
	}
	for query, want := range map[string]plan{
		"":                                  {opts: usual},
		"class=http_422&reason=why&count=7": {opts: usual, filter: outbox.Filter{Class: "http_422"}, reason: "why", count: 7},
		"shown_at=2023-11-14T22:13:20.123Z": {opts: usual, shownAt: time.UnixMilli(1_700_000_000_123).UTC()},
		"event=5:a&event=6:b&event=5:c":     {opts: usual, filter: outbox.Filter{Events: []outbox.EventName{{Slot: 5, ID: "a"}, {Slot: 6, ID: "b"}, {Slot: 5, ID: "c"}}}},
		"canary=0":                          {opts: with(func(o *outbox.RearmOptions) { o.Canary = 0 })},
		"canary=1000&max_parked_again=-1":   {opts: with(func(o *outbox.RearmOptions) { o.Canary, o.MaxParkedAgain = 1000, -1 })},
		"rate=":                             {opts: with(func(o *outbox.RearmOptions) { o.Rate = 0 })},
		"rate=0":                            {opts: with(func(o *outbox.RearmOptions) { o.Rate = 0 })},
		"rate=999999999.5":                  {opts: with(func(o *outbox.RearmOptions) { o.Rate = 999_999_999.5 })},
		"canary_wait=5m&to=crm":             {opts: with(func(o *outbox.RearmOptions) { o.CanaryWait, o.Destination = 5*time.Minute, "crm" })},
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		want.act = "rearm"
		if got, err := planOf("rearm", form); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("planOf(%s) = %+v, %v; want %+v", query, got, err, want)
		}
	}
	for query, want := range map[string]string{
		"count=x": "count is", "canary=1.5": "canary is", "max_parked_again=many": "max_parked_again is", "canary=1001": "at most 1000",
		"rate=x": "rate is", "rate=-1": "rate is", "rate=1e9": "rate is", "rate=NaN": "rate is", "canary_wait=5": "canary_wait is",
		"canary_wait=-5s": "CanaryWait", "to=a%0Ab": "one line", "event=5": "form slot:id", "event=x:a": "form slot:id", "event=5:": "form slot:id",
		"count=x&canary=y&rate=z&canary_wait=5": "count is", "shown_at=now&count=x": "shown_at is", "slot=x": "slot",
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := planOf("rearm", form); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("planOf(%s): error %v, want one with %q", query, err, want)
		}
	}
}

func TestSentenceNamesEveryEffectOfThePlan(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]plan{
		"Discard 1,200 events of class a, for good":                                           {act: "discard", count: 1200, filter: outbox.Filter{Class: "a"}, opts: outbox.RearmOptions{Rate: 5, Canary: 3}},
		"Re-arm 1 event of class a":                                                           {count: 1, filter: outbox.Filter{Class: "a"}},
		"Re-arm 0 events of class a":                                                          {filter: outbox.Filter{Class: "a"}},
		"Re-arm 2 events of class a; stop when more than 0 park again":                        {count: 2, filter: outbox.Filter{Class: "a"}},
		"Re-arm 2 events selected by id; publish to crm instead":                              {count: 2, filter: outbox.Filter{Events: []outbox.EventName{{Slot: 5, ID: "x"}}}, opts: outbox.RearmOptions{Destination: "crm", MaxParkedAgain: -1}},
		"Re-arm 9 events in slots [5]; 1 first; at most 0.5 per second":                       {count: 9, filter: outbox.Filter{Slots: []int{5}}, opts: outbox.RearmOptions{Canary: 1, Rate: 0.5, MaxParkedAgain: -1}},
		"Re-arm 9 events for crm, of type sold; stop when more than 1,000 park again":         {count: 9, filter: outbox.Filter{Destination: "crm", Type: "sold"}, opts: outbox.RearmOptions{MaxParkedAgain: 1000}},
		"Re-arm 9 events whose error contains “no”, parked for at least 1 min":                {count: 9, filter: outbox.Filter{Text: "no", OlderThan: time.Minute}, opts: outbox.RearmOptions{MaxParkedAgain: -1}},
		"Re-arm 9 events (all parked events)":                                                 {count: 9, opts: outbox.RearmOptions{MaxParkedAgain: -1}},
		"Re-arm 9 events with the ordering key k, of the aggregate a; at most 2.0 per second": {count: 9, filter: outbox.Filter{Key: "k", Aggregate: "a"}, opts: outbox.RearmOptions{Rate: 2, MaxParkedAgain: -1}},
	} {
		p.shownAt = time.Unix(1, 0)
		if p.act == "" {
			p.act = "rearm"
		}
		if got := p.sentence(); got != want {
			t.Errorf("sentence() = %q, want %q", got, want)
		}
		for _, c := range []struct {
			form url.Values
			want bool
		}{{url.Values{"confirm": {want}}, p.count > 0}, {url.Values{"confirm": {want + "."}}, false}, {url.Values{}, false}} {
			if got := p.confirmed(c.form); got != c.want {
				t.Errorf("plan %q: confirmed(%q) = %t", want, c.form, got)
			}
			undated := p
			undated.shownAt = time.Time{}
			if undated.confirmed(c.form) {
				t.Errorf("plan %q: confirmed(%q) without the time of the preview", want, c.form)
			}
		}
	}
}

func TestConfirmingFormCarriesThePlan(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_123)
	p := plan{act: "rearm", count: 3, shownAt: at, filter: outbox.Filter{Class: "a", Type: "b"}, opts: outbox.RearmOptions{MaxParkedAgain: -1}}
	always := []nameValue{{"count", "3"}, {"shown_at", "2023-11-14T22:13:20.123Z"}, {"confirm", p.sentence()}}
	if got, want := p.hidden(), append(always[:3:3], nameValue{"class", "a"}, nameValue{"type", "b"}); !reflect.DeepEqual(got, want) {
		t.Errorf("hidden fields %v, want %v", got, want)
	}
	selected := plan{act: "rearm", count: 3, shownAt: at, filter: outbox.Filter{Events: []outbox.EventName{{Slot: 5, ID: "x"}, {Slot: 6, ID: "y:1"}}}, opts: p.opts}
	always[2].Value = selected.sentence()
	if got, want := selected.hidden(), append(always[:3:3], nameValue{"event", "5:x"}, nameValue{"event", "6:y:1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("hidden fields %v, want %v", got, want)
	}
	if got := backOf(p.filter); got.Class != "a" {
		t.Errorf("backOf returned the filter %+v", got)
	}
	if got := backOf(selected.filter); len(got.Events) > 0 {
		t.Errorf("backOf returned the filter %+v", got)
	}
}
