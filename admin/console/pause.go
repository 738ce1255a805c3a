package console

import (
	"net/http"
	"time"

	"github.com/luatx/luatx/admin/internal/guard"
)

// pause pauses a destination for a duration, or until an operator resumes it.
func (u *ui) pause(c *guard.Call) error {
	fields := c.R.PostForm
	var until time.Time
	if text := fields.Get("for"); text != "" {
		long, err := time.ParseDuration(text)
		if err != nil || long <= 0 {
			return &guard.Problem{Status: http.StatusBadRequest, Title: "Destination not paused", Detail: "The duration is invalid. Use a duration such as 30m or 2h, or leave it empty to pause until an operator resumes."}
		}
		now, err := u.desk.Time(c.R.Context())
		if err != nil {
			return err
		}
		until = now.Add(long)
	}
	if err := c.Op.Pause(c.R.Context(), fields.Get("destination"), fields.Get("reason"), until); err != nil {
		return err
	}
	c.Redirect("#pauses")
	return nil
}

func (u *ui) resume(c *guard.Call) error {
	if _, err := c.Op.Resume(c.R.Context(), c.R.PostForm.Get("destination")); err != nil {
		return err
	}
	c.Redirect("#pauses")
	return nil
}
