package luatxtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/luatx/luatx/luatxtest"
	"github.com/luatx/luatx/trigger"
)

// lateness is longer than anything that should happen soon may take.
const lateness = 6 * time.Second

// queue is a source in memory with the named defect.
type queue struct {
	defect string
	once   bool

	mu       sync.Mutex
	entries  map[int]string // open entries by number
	out      map[int]bool   // delivered to this driver
	next     int
	acks     map[string]int
	reborn   int
	notEmpty chan struct{}
}

func newQueue(defect string) *queue {
	return &queue{defect: defect, entries: map[int]string{}, out: map[int]bool{}, acks: map[string]int{}, notEmpty: make(chan struct{}, 1)}
}

func (q *queue) send(_ context.Context, text string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	q.entries[q.next] = text
	select {
	case q.notEmpty <- struct{}{}:
	default:
	}
	return nil
}

func (q *queue) open(context.Context) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries), nil
}

func (q *queue) NextDelivery(ctx context.Context, wait time.Duration) (*trigger.Delivery, error) {
	if d := q.choose(); d != nil {
		return d, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	switch q.defect {
	case "waits for ever":
		timer.Reset(lateness)
	case "waits beside its context":
		if ctx.Err() != nil {
			ctx = context.WithoutCancel(ctx)
			timer.Reset(lateness - 2*time.Second)
		}
	case "fails where nothing comes":
		return nil, errors.New("empty")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
	case <-q.notEmpty:
	}
	return q.choose(), nil
}

func (q *queue) choose() *trigger.Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := 1; n <= q.next; n++ {
		text, there := q.entries[n]
		if !there || q.out[n] {
			continue
		}
		q.out[n] = true
		d := &trigger.Delivery{Stream: "q", ID: fmt.Sprint(n), Fields: map[string]string{"data": text}, Attempt: 1, Time: time.Now()}
		switch q.defect {
		case "has one id":
			d.ID = "0"
		case "has no id":
			d.ID = ""
		case "has no time":
			d.Time = time.Time{}
		case "changes what is sent":
			d.Fields["data"] = text[:1]
		case "acks what it delivers":
			delete(q.entries, n)
		}
		if q.once {
			d.Stream, d.ID, d.Fields, d.Data, d.Once = "", "", nil, []byte(text), true
			delete(q.entries, n)
		}
		return d
	}
	return nil
}

func (q *queue) Ack(_ context.Context, d *trigger.Delivery) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.acks[d.ID]++
	var n int
	if _, err := fmt.Sscan(d.ID, &n); err != nil {
		return err
	}
	switch {
	case q.defect == "acks nothing":
		return nil
	case q.defect == "acks once" && q.acks[d.ID] > 1:
		return errors.New("acked already")
	case q.defect == "forgets by reconnecting" && !q.out[n]:
		return errors.New("not mine")
	}
	delete(q.entries, n)
	return nil
}

func (q *queue) Reconnect(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reborn++
	switch {
	case q.defect == "forgets by reconnecting":
		clear(q.out)
		for n := range q.entries {
			if q.reborn > 1 {
				q.out[n] = false
			}
		}
	case q.defect == "connects once" && q.reborn > 1:
		return errors.New("connected already")
	case q.defect == "drops by reconnecting":
		maps.DeleteFunc(q.entries, func(n int, _ string) bool { return q.out[n] })
	case q.defect == "delivers acked ones again" && q.reborn > 1:
		q.entries[1] = "acked"
		q.out[1] = false
	}
	return nil
}

func (q *queue) Close() error {
	if q.defect == "fails to close" {
		return errors.New("in use")
	}
	return nil
}

// setsAside is a queue with dead letters.
type setsAside struct{ *queue }

func (s setsAside) DeadLetter(ctx context.Context, d *trigger.Delivery, _ string) error {
	if s.defect == "keeps dead letters" {
		return nil
	}
	return s.Ack(ctx, d)
}

func (q *queue) target() luatxtest.DriverTarget {
	return luatxtest.DriverTarget{Driver: setsAside{q}, Send: q.send, Open: q.open}
}

func TestDriverOfAQueuePasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestDriver(t, func(testing.TB) luatxtest.DriverTarget { return newQueue("").target() })
}

func TestDriverThatDeliversOncePasses(t *testing.T) {
	t.Parallel()
	luatxtest.TestDriver(t, func(testing.TB) luatxtest.DriverTarget {
		q := newQueue("")
		q.once = true
		return luatxtest.DriverTarget{Driver: q, Send: q.send}
	})
}

func TestTestDriverDetectsEachDefect(t *testing.T) {
	t.Parallel()
	for defect, want := range map[string]string{
		"waits for ever":            "nothing was sent",
		"waits beside its context":  "its context has ended",
		"fails where nothing comes": "neither a delivery nor an error",
		"has one id":                "two deliveries in flight have the id",
		"has no id":                 "has no ID",
		"has no time":               "has no Time",
		"changes what is sent":      "was delivered 0 times",
		"acks what it delivers":     "it would be lost",
		"acks nothing":              "after the acknowledgement, want 0",
		"acks once":                 "a second time",
		"forgets by reconnecting":   "want what was sent then",
		"connects once":             "Reconnect: connected already",
		"drops by reconnecting":     "it would be lost",
		"delivers acked ones again": "has been acknowledged",
		"fails to close":            "Close: in use",
		"keeps dead letters":        "after it became a dead letter",
	} {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			rejects(t, want, func(wrap func(string, func(testing.TB))) {
				luatxtest.CheckDriver(t, func(testing.TB) luatxtest.DriverTarget {
					target := newQueue(defect).target()
					target.Patience = time.Second
					return target
				}, wrap)
			})
		})
	}
}
