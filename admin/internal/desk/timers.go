package desk

import (
	"context"

	"github.com/luatx/luatx/admin"
)

// TimerPage is a page of timers.
type TimerPage struct {
	Timers []admin.Timer
	Next   string // where the next page begins; empty on the last page
}

// Timers lists at most limit timers.
func Timers(ctx context.Context, op *admin.Operator, f admin.TimerFilter, limit int) (page TimerPage, err error) {
	for t, err := range op.Timers(ctx, f) {
		if err != nil {
			return page, err
		}
		if len(page.Timers) == limit {
			page.Next = page.Timers[limit-1].Cursor()
			break
		}
		page.Timers = append(page.Timers, t)
	}
	return page, nil
}
