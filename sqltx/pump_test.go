package sqltx

import "testing"

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
