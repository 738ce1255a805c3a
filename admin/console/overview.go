package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/pretty"
)

// verdict describes a problem: the stuck object, the reason, and the time since when.
type verdict struct {
	Level, What, Why, Link, Act string
}

// figure is one number.
type figure struct {
	Name, Value, Note, Level string
}

type overviewPage struct {
	At                           time.Time
	Verdicts                     []verdict
	Figures                      []figure
	Charts                       []chart
	Classes, Destinations, Types tally
	Shards                       []fullness
	Pauses                       []admin.Pause
	Names                        []string // of destinations
}

// lateAfter is the delay after which a due event that is not leased is reported.
const lateAfter = 30 * time.Second

func (u *ui) overview(c *guard.Call) error {
	ctx := c.R.Context()
	now, err := u.desk.Samples.Now(ctx)
	if err != nil {
		return err
	}
	seen, err := u.glance(ctx, now.Stats.At)
	if err != nil {
		return err
	}
	hour, err := u.desk.Histories.Recent(ctx, desk.Hour())
	if err != nil {
		return err
	}
	pauses, err := c.Op.Paused(ctx)
	if err != nil {
		return err
	}
	base, parked := c.Base(), now.Stats.Parked
	to := func(name string) func(string) string {
		return func(value string) string { return pageLink(base, "parked", name, value) }
	}
	page := overviewPage{
		At: now.Stats.At, Shards: seen.shards, Pauses: pauses, Names: names(parked.ByDestination), Charts: charts(hour, "now"),
		Figures:      figures(now),
		Classes:      newTally("Parked by class", "Class", parked.ByClass, now.Classes.Names, to("class")),
		Destinations: newTally("Parked by destination", "Destination", parked.ByDestination, now.Destinations.Names, to("destination")),
		Types:        newTally("Parked by type", "Type", parked.ByType, now.Types.Names, to("type")),
	}
	page.Verdicts = verdicts(base, now.Stats, seen.since, seen.shards, pauses)
	return u.show(c, "overview", "Overview", page, live)
}

func verdicts(base string, now admin.Stats, since time.Time, shards []fullness, pauses []admin.Pause) []verdict {
	var all []verdict
	if n := now.Parked.Total; n > 0 {
		v := verdict{Level: "bad", What: events(n) + " parked", Link: base + "parked", Act: "Show parked events"}
		for _, top := range now.Top(1) {
			class := cmp.Or(top.Class, "(none)")
			if v.Why = "All are of class " + class; top.Events < n {
				v.Why = fmt.Sprintf("Most of them, %s, are of class %s", pretty.Thousands(top.Events), class)
			}
		}
		if !since.IsZero() {
			v.Why += ". The first has been parked for " + span(now.At.Sub(since))
		}
		v.Why += ". Parked events stay until an operator re-arms or discards them."
		all = append(all, v)
	}
	if now.Blocked.Keys > 0 {
		all = append(all, blockedVerdict(base, now))
	}
	if now.Oldest >= lateAfter {
		all = append(all, verdict{
			Level: "warn", What: "The oldest event has been due for " + span(now.Oldest),
			Why: "Either no relay is running, no relay can reach the destination, or the relays do not keep up.", Link: base + "doctor", Act: "Run the doctor",
		})
	}
	if len(pauses) > 0 {
		v := verdict{Level: "warn", What: "1 destination is paused", Why: "Nothing is published to it until it is resumed.", Link: "#pauses", Act: "Show paused destinations"}
		if len(pauses) > 1 {
			v.What, v.Why = pretty.Thousands(len(pauses))+" destinations are paused", "Nothing is published to them until they are resumed."
		}
		all = append(all, v)
	}
	for _, s := range shards {
		if s.Percent >= fullAlarm {
			all = append(all, verdict{
				Level: s.Level, What: fmt.Sprintf("Slot %d is %d %% full", s.Slot, s.Percent),
				Why: "When a shard is full, commits that emit events fail. To free space, let relays publish, or re-arm or discard parked events.",
			})
			break
		}
	}
	if len(all) == 0 {
		all = append(all, verdict{Level: "good", What: "Nothing is stuck", Why: "No event is parked, and no event is overdue."})
	}
	return all
}

// blockedVerdict returns the number of events that wait behind parked ones.
func blockedVerdict(base string, now admin.Stats) verdict {
	b, least := now.Blocked, ""
	if b.More {
		least = "At least "
	}
	keys := "1 ordering key is"
	if b.Keys != 1 {
		keys = pretty.Thousands(b.Keys) + " ordering keys are"
	}
	return verdict{
		Level: "bad", What: least + events(b.Events) + " held back behind parked ones", Link: base + "blocked", Act: "See behind which",
		Why: keys + " blocked, the first for " + span(now.At.Sub(b.Since)) + ". Relays publish the held-back events after the parked ones are re-armed and sent, or discarded.",
	}
}

// events formats a number of events.
func events(n int64) string {
	if n == 1 {
		return "1 event is"
	}
	return pretty.Thousands(n) + " events are"
}

func figures(now desk.Sample) []figure {
	c := now.Stats.Counts
	all := []figure{
		{Name: "Parked", Value: pretty.Thousands(c.Parked), Level: levelIf(c.Parked > 0, "bad")},
		{Name: "Oldest due", Value: span(now.Stats.Oldest), Level: levelIf(now.Stats.Oldest >= lateAfter, "warn")},
		{Name: "Oldest unpublished", Value: span(now.Stats.OldestUnpublished), Level: levelIf(now.Stats.OldestUnpublished >= lateAfter, "warn")},
		{Name: "Held back", Value: held(now.Stats.Blocked), Note: "behind parked events", Level: levelIf(now.Stats.Blocked.Events > 0, "bad")},
		{Name: "Pending", Value: pretty.Thousands(c.Pending), Note: size(c.Bytes)},
		{Name: "Leased", Value: pretty.Thousands(c.Leased)},
		{Name: "Waiting", Value: pretty.Thousands(c.Waiting)},
		{Name: "Sent ids kept", Value: pretty.Thousands(c.Sent), Note: "to recognize duplicates"},
	}
	if now.Rates != nil {
		all = append(all,
			figure{Name: "Enqueued", Value: perSecond(now.Rates.Enqueued), Note: "per second"},
			figure{Name: "Sent", Value: perSecond(now.Rates.Sent), Note: "per second"},
			figure{Name: "Failed", Value: perSecond(now.Rates.Failed), Note: "attempts per second"},
		)
	}
	return all
}

// held is the number of events behind parked ones.
func held(b admin.Blocked) string {
	if b.More {
		return pretty.Thousands(b.Events) + "+"
	}
	return pretty.Thousands(b.Events)
}

func levelIf(so bool, level string) string {
	if so {
		return level
	}
	return ""
}

// glance is the part of the overview besides the numbers. It is cached for as long as they are.
type glance struct {
	at, since time.Time
	shards    []fullness
}

// glance reads the data once for all readers of the same numbers.
func (u *ui) glance(ctx context.Context, at time.Time) (g glance, err error) {
	select {
	case g = <-u.glances:
	case <-ctx.Done():
		return g, context.Cause(ctx)
	}
	defer func() { u.glances <- g }()
	if g.at.Equal(at) {
		return g, nil
	}
	next := glance{at: at}
	var errs [2]error
	var group sync.WaitGroup
	group.Go(func() { next.since, errs[0] = parkedSince(ctx, parts.Of(u.desk.Op)) })
	group.Go(func() { next.shards, errs[1] = fullest(ctx, parts.Of(u.desk.Op), 5) })
	group.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return g, err
	}
	g = next
	return g, nil
}
