package admin

import (
	"net/http"
	"time"
)

// pause pauses a destination, for a time or until it is resumed.
func (u *ui) pause(c *call) error {
	asked := c.r.PostForm
	var until time.Time
	if text := asked.Get("for"); text != "" {
		long, err := time.ParseDuration(text)
		if err != nil || long <= 0 {
			return &problem{Status: http.StatusBadRequest, Title: "Nothing was paused", Detail: "For how long? Use a time as 30m or 2h, or nothing: until it is resumed."}
		}
		now, err := c.op.cfg.Client.Time(c.r.Context()).Result()
		if err != nil {
			return err
		}
		until = now.Add(long)
	}
	if err := c.op.Pause(c.r.Context(), asked.Get("destination"), asked.Get("reason"), until); err != nil {
		return err
	}
	c.redirect("#pauses")
	return nil
}

func (u *ui) resume(c *call) error {
	if _, err := c.op.Resume(c.r.Context(), c.r.PostForm.Get("destination")); err != nil {
		return err
	}
	c.redirect("#pauses")
	return nil
}
