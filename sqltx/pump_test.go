package sqltx

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/luatx/luatx/internal/test/rig"
	"github.com/luatx/luatx/message"
)

func TestEmptyLaneIsRemoved(t *testing.T) {
	t.Parallel()
	head, later := &held{row: row{key: "k"}}, &held{row: row{key: "k"}}
	s := &pump{OutboxPublisher: &OutboxPublisher{}, lanes: map[string]*lane{"k": {head: head, later: []*held{later}}}}
	s.advance(settlement{held: later, what: sent}) // late, because it is not the head
	if len(s.ready) > 0 || s.lanes["k"].head != head {
		t.Fatalf("%d are ready", len(s.ready))
	}
	s.advance(settlement{held: head, what: sent})
	if len(s.ready) != 1 || s.ready[0] != later {
		t.Fatalf("%d are ready, want the later one", len(s.ready))
	}
	s.advance(settlement{held: later, what: sent})
	if len(s.lanes) > 0 {
		t.Errorf("%d lanes are remembered", len(s.lanes))
	}
}

// TestStopDoesNotWaitForAnEventThatIsWritten writes the event and stops while the loop waits for a claim.
func TestStopDoesNotWaitForAnEventThatIsWritten(t *testing.T) {
	t.Parallel()
	for range 20 { // the loop may notice either one first
		claim := once(claiming, rows(1, 1, 1))
		db := &answers{}
		db.answer = func(statement string, args []any) ([][]any, error) {
			if strings.Contains(statement, claiming) && time.Since(db.began) > 0 {
				<-time.After(time.Second)
			}
			return claim(statement, args)
		}
		inBubble(t, db, OutboxPublisherConfig{}, func(events <-chan *message.RawMessage, p *OutboxPublisher, stop func(), logs *rig.Lines) {
			time.Sleep(time.Second)
			(<-events).Ack()
			synctest.Wait()
			stop()
			p.Wait()
			if took := time.Since(db.began); took != 1500*time.Millisecond || logs.Count("level=") > 0 {
				t.Errorf("ended after %v:\n%s", took, logs)
			}
		})
	}
}
