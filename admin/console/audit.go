package console

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/outbox"
)

type auditPage struct {
	Spans   []auditSpan
	Records []outbox.Record
	More    bool
}

type auditSpan struct {
	Name, Link string
	Current    bool
}

// period is a period of the audit.
type period struct {
	name, value string
	long        time.Duration
}

// auditSpans lists the periods. The default is the last 24 hours.
var auditSpans = []period{{"last hour", "hour", time.Hour}, {"last 24 hours", "day", 24 * time.Hour}, {"last 7 days", "week", 7 * 24 * time.Hour}, {"all", "all", 0}}

// auditRecords is the number of records on a page.
const auditRecords = 200

func (u *ui) audit(c *guard.Call) error {
	now, err := u.desk.Samples.Now(c.R.Context())
	if err != nil {
		return err
	}
	chosen := slices.IndexFunc(auditSpans, func(p period) bool { return p.value == cmp.Or(c.Query.Get("since"), "day") })
	if chosen < 0 {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "Unknown period", Detail: "since must be hour, day, week or all."}
	}
	page, since := auditPage{}, time.UnixMilli(0)
	for i, s := range auditSpans {
		page.Spans = append(page.Spans, auditSpan{s.name, pageLink(c.Base(), "audit", "since", s.value), i == chosen})
	}
	if long := auditSpans[chosen].long; long > 0 {
		since = now.Stats.At.Add(-long)
	}
	for record, err := range c.Op.Audit(c.R.Context(), since) {
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
