package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/outbox"
)

type streamsPage struct {
	Key     string
	Streams []streamView
}

type streamView struct {
	StreamState

	Error string
}

func (u *ui) streams(c *call) error {
	page := streamsPage{Key: c.query.Get("key")}
	keys := u.h.cfg.Streams
	if page.Key != "" {
		keys = []string{page.Key}
	}
	for s, err := range c.op.Streams(c.r.Context(), keys...) {
		v := streamView{StreamState: s}
		if err != nil {
			v.Error = err.Error()
		}
		page.Streams = append(page.Streams, v)
	}
	return u.show(c, "streams", "Streams", page, live)
}

type inboxPage struct {
	Aggregate string
	ID        luatx.MessageID
	Asked     bool
	Mark      Mark
}

func (u *ui) inbox(c *call) error {
	page := inboxPage{
		Aggregate: c.query.Get("aggregate"),
		ID:        luatx.MessageID{Scope: c.query.Get("scope"), Source: c.query.Get("source"), ID: c.query.Get("id")},
	}
	if page.Asked = page.ID.ID != "" || page.Aggregate != ""; page.Asked {
		var err error
		if page.Mark, err = c.op.Known(c.r.Context(), page.Aggregate, page.ID); err != nil {
			return err
		}
	}
	return u.show(c, "inbox", "Inbox", page)
}

func (u *ui) forget(c *call) error {
	asked := c.r.PostForm
	if asked.Get("sure") != "yes" || asked.Get("reason") == "" {
		return &problem{Status: http.StatusBadRequest, Title: "Nothing has happened", Detail: "Name a reason, and say that you are sure."}
	}
	id := luatx.MessageID{Scope: asked.Get("scope"), Source: asked.Get("source"), ID: asked.Get("id")}
	if _, err := c.op.Forget(c.r.Context(), asked.Get("aggregate"), id, asked.Get("reason")); err != nil {
		return err
	}
	c.redirect(link("", "inbox", "aggregate", asked.Get("aggregate"), "scope", id.Scope, "source", id.Source, "id", id.ID))
	return nil
}

type auditPage struct {
	Spans   []auditSpan
	Records []outbox.Record
	More    bool
}

type auditSpan struct {
	Name, Link string
	Current    bool
}

// period is a time that the audit may be looked at for.
type period struct {
	name, value string
	long        time.Duration
}

// auditSpans are the periods; the second is the usual one.
var auditSpans = []period{{"an hour", "hour", time.Hour}, {"a day", "day", 24 * time.Hour}, {"a week", "week", 7 * 24 * time.Hour}, {"all", "all", 0}}

// auditRecords is how many records a page lists.
const auditRecords = 200

func (u *ui) audit(c *call) error {
	now, err := u.h.samples.now(c.r.Context(), u.h.op)
	if err != nil {
		return err
	}
	chosen := slices.IndexFunc(auditSpans, func(p period) bool { return p.value == cmp.Or(c.query.Get("since"), "day") })
	if chosen < 0 {
		return &problem{Status: http.StatusBadRequest, Title: "There is no such time", Detail: "Use hour, day, week or all."}
	}
	page, since := auditPage{}, time.UnixMilli(0)
	for i, s := range auditSpans {
		page.Spans = append(page.Spans, auditSpan{s.name, link(c.base(), "audit", "since", s.value), i == chosen})
	}
	if long := auditSpans[chosen].long; long > 0 {
		since = now.Stats.At.Add(-long)
	}
	for record, err := range c.op.Audit(c.r.Context(), since) {
		if err != nil {
			return err
		}
		if len(page.Records) == auditRecords {
			page.Records, page.More = page.Records[1:], true
		}
		page.Records = append(page.Records, record)
	}
	slices.Reverse(page.Records)
	return u.show(c, "audit", "Audit", page)
}

type doctorPage struct {
	Level, Verdict        string
	Found                 []diagnosed
	Repair, Checked, More bool
	Findings              []string
}

type diagnosed struct {
	Diagnosis

	Level string
}

func (u *ui) doctor(c *call) error {
	found, err := c.op.Examine(c.r.Context(), Examination{})
	if err != nil {
		return err
	}
	page := doctorPage{Level: "good", Verdict: "Nothing is wrong", Repair: !u.h.cfg.NoRepair}
	for i := range found {
		d := diagnosed{Diagnosis: found[i]}
		switch d.Severity {
		case Failing:
			d.Level, page.Level, page.Verdict = "bad", "bad", "Something is wrong"
		case Risky:
			if d.Level = "warn"; page.Level == "good" {
				page.Level, page.Verdict = "warn", "It works until something happens"
			}
		}
		page.Found = append(page.Found, d)
	}
	if page.Checked = page.Repair && c.query.Get("check") == "1"; page.Checked {
		for finding, err := range c.op.Check(c.r.Context()) {
			if err != nil {
				return err
			}
			if page.More = len(page.Findings) == shownFindings; page.More {
				break
			}
			page.Findings = append(page.Findings, finding.String())
		}
	}
	return u.show(c, "doctor", "Doctor", page)
}
