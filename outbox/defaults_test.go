package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/documented"
	"github.com/luatx/luatx/message"
)

func TestConfigsHaveTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	documented.Defaults(t, RearmOptions{}.withDefaults())
	if want := (Work{100, 30 * time.Second, 10, time.Second, 5 * time.Minute, time.Hour, false, false}); (Work{}).withDefaults() != want {
		t.Errorf("%+v, want %+v", Work{}.withDefaults(), want)
	}
}

func TestConfigsRejectValuesOutsideTheDocumentedBounds(t *testing.T) {
	t.Parallel()
	documented.Bounds(t, RearmOptions{}, RearmOptions.Validate)
	documented.Bounds(t, Work{}, func(w Work) error { return w.withDefaults().validate() })
}

func TestBoundsOfOptionsAreValid(t *testing.T) {
	t.Parallel()
	if err := (RearmOptions{Canary: 1000}).Validate(); err != nil {
		t.Error(err)
	}
	end := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	for at, valid := range map[time.Time]bool{time.UnixMilli(-1): false, time.UnixMilli(0): true, end.Add(-1): true, end: false} {
		if err := (Change{Act: ActReschedule, Reason: "why", At: at}).Validate(); (err == nil) != valid {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

func TestDigestHasFortyLowerCaseHexDigits(t *testing.T) {
	t.Parallel()
	rest := strings.Repeat("5", 39)
	for _, c := range "09af" {
		if !isDigest(string(c)+rest) || !isDigest(rest+string(c)) {
			t.Errorf("%q is no digit", c)
		}
	}
	for _, c := range "/:`gAF" {
		if isDigest(string(c) + rest) {
			t.Errorf("%q is a digit", c)
		}
	}
	if isDigest(rest) || isDigest(rest+"55") {
		t.Error("another length is taken")
	}
}

func TestFilterMatchesAllOfItsFields(t *testing.T) {
	t.Parallel()
	now := time.Now()
	event := Event{
		Slot: 7, ID: "1", Key: "k", Class: "odd", Error: "no route", At: now.Add(-time.Hour),
		Message: message.NewRaw(nil, message.Attributes{"type": "t", "destination": "d"}, nil),
	}
	bare, later := event, event
	bare.Message, later.At = nil, now.Add(time.Hour)
	for _, c := range []struct {
		filter Filter
		event  Event
		want   bool
	}{
		{Filter{}, event, true},
		{Filter{}, bare, true},
		{Filter{}, later, true},
		{Filter{Slots: []int{7}}, event, true},
		{Filter{Slots: []int{6}}, event, false},
		{Filter{Slots: []int{6, 7}}, event, true},
		{Filter{IDs: []string{"1"}}, event, true},
		{Filter{IDs: []string{"2"}}, event, false},
		{Filter{Slots: []int{7}, IDs: []string{"2"}}, event, false},
		{Filter{Slots: []int{6}, IDs: []string{"1"}}, event, false},
		{Filter{Events: []EventName{{6, "2"}, {7, "1"}}}, event, true},
		{Filter{Events: []EventName{{6, "1"}, {7, "2"}}}, event, false},
		{Filter{Key: "k"}, event, true},
		{Filter{Key: "l"}, event, false},
		{Filter{Class: "odd"}, event, true},
		{Filter{Class: "even"}, event, false},
		{Filter{Text: "route"}, event, true},
		{Filter{Text: "way"}, event, false},
		{Filter{OlderThan: time.Hour}, event, true},
		{Filter{OlderThan: time.Hour + 1}, event, false},
		{Filter{OlderThan: 1}, later, false},
		{Filter{Type: "t"}, event, true},
		{Filter{Type: "u"}, event, false},
		{Filter{Type: "t"}, bare, false},
		{Filter{Destination: "d"}, event, true},
		{Filter{Destination: "e"}, event, false},
		{Filter{Destination: "d"}, bare, false},
		{Filter{Type: "t", Destination: "e"}, event, false},
		{Filter{Type: "u", Destination: "d"}, event, false},
		{Filter{Key: "k", Type: "t", Destination: "d", Class: "odd"}, event, true},
	} {
		if got := c.filter.Matches(c.event, now); got != c.want {
			t.Errorf("%s matches %+v: %t", c.filter, c.event, got)
		}
	}
}
