package console

import (
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/guard"
)

type doctorPage struct {
	Level, Verdict        string
	Found                 []diagnosed
	Repair, Checked, More bool
	Findings              []string
}

type diagnosed struct {
	admin.Diagnosis

	Level string
}

func (u *ui) doctor(c *guard.Call) error {
	found, err := c.Op.Examine(c.R.Context(), admin.Examination{})
	if err != nil {
		return err
	}
	page := doctorPage{Level: "good", Verdict: "No problems found", Repair: !u.desk.NoRepair}
	for i := range found {
		d := diagnosed{Diagnosis: found[i]}
		switch d.Severity {
		case admin.Failing:
			d.Level, page.Level, page.Verdict = "bad", "bad", "luatx does not work correctly: resolve the errors below"
		case admin.Risky:
			if d.Level = "warn"; page.Level == "good" {
				page.Level, page.Verdict = "warn", "luatx works, but is at risk: see the warnings below"
			}
		}
		page.Found = append(page.Found, d)
	}
	if page.Checked = page.Repair && c.Query.Get("check") == "1"; page.Checked {
		for finding, err := range c.Op.Check(c.R.Context()) {
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

func (u *ui) fix(c *guard.Call) error {
	started, err := u.desk.Operations.Fix(c.Op)
	if err != nil {
		return err
	}
	c.Redirect("operations/" + started.ID)
	return nil
}
