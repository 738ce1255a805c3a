package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// block enqueues events with an ordering key and parks the first one.
func (s site) block(client redis.UniversalClient, aggregate, key string, ids ...string) {
	s.t.Helper()
	tr := s.service(client)
	for _, id := range ids {
		body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"type":"sold","source":"/shop","destination":"bank"}`, id)
		_, err := tr.Enqueue(redistest.Soon(s.t), aggregate, luatx.Event{ID: id, Key: key, Body: body})
		redistest.Must(s.t, err)
	}
	store := outbox.NewStore(tr)
	slot, err := store.Slot(aggregate)
	redistest.Must(s.t, err)
	batch, err := store.Claim(redistest.Soon(s.t), slot, outbox.Work{})
	redistest.Must(s.t, err)
	_, err = store.Failed(redistest.Soon(s.t), batch, outbox.Work{}, outbox.Fault{ID: ids[0], Err: message.Permanent(errors.New("no such account"))})
	redistest.Must(s.t, err)
}

func TestBlockedKeysAreListedAndCountedByStats(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		s.has(s.run(0, "", "blocked"), "no ordering key is blocked")
		s.block(client, "a", "k", "head", "1", "2")
		s.block(client, "b", "other", "first", "last")
		s.has(s.run(0, "", "blocked"), "HOLDS-BACK", " head k 2", "no such account", " first other 2")
		s.has(s.run(0, "", "blocked", "--key", "k", "--json"), `"id":"head"`, `"holds_back":2`)
		s.has(s.run(0, "", "blocked", "--limit", "1"), "there are more")
		s.has(s.run(0, "", "stats", "--over", "0"), "OLDEST-UNPUBLISHED", "KEYS EVENTS SINCE 2 3 2")
		s.has(s.run(0, "", "stats", "--over", "0", "--json"), `"blocked":{"keys":2,"events":3`)
		s.has(s.run(0, "", "parked", "show", "2"), "waits behind head")
		s.has(s.run(0, "", "parked", "show", "head"), "holds back 2 events")
	})
}
