package stream_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// TestDeleteAckedUsesXACKDELWhereTheServerHasIt counts commands on the connections of a subscriber with DeleteAcked.
func TestDeleteAckedUsesXACKDELWhereTheServerHasIt(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	f := newFixture(t, redistest.Client(t, proxy.Addr()))
	f.add(t, numbers(3)...)
	cfg := f.config()
	cfg.DeleteAcked, cfg.ClaimInterval = true, time.Hour // so that no other script runs later
	sub := f.subscribe(t, cfg)
	msgs := []*message.RawMessage{sub.next(t), sub.next(t), sub.next(t)} // after the scripts that run at the start
	before := proxy.Count("EVALSHA", "EVAL")
	for _, msg := range msgs {
		msg.Ack()
	}
	scripts, native := proxy.Count("EVALSHA", "EVAL")-before, proxy.Count("XACKDEL")
	if knows(t, f.client, "XACKDEL") {
		if native != 3 || scripts != 0 {
			t.Errorf("%d XACKDEL and %d scripts, want 3 and none", native, scripts)
		}
	} else if native != 1 || scripts < 3 {
		t.Errorf("%d XACKDEL and %d scripts, want one that the server does not know, and a script for each", native, scripts)
	}
	if left := f.entries(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	f.wantPending(t, 0)
}

// knows reports whether the server has a command. The version of the local program may differ from that of a server in a
// container.
func knows(t *testing.T, client redis.UniversalClient, command string) bool {
	t.Helper()
	infos, err := client.Do(t.Context(), "COMMAND", "INFO", command).Slice()
	redistest.Must(t, err)
	return infos[0] != nil
}

func TestDeleteAckedDeletesAnEntryThatIsNotPendingAnyMore(t *testing.T) {
	t.Parallel()
	f := shared(t)
	id := f.add(t, "a")[0]
	cfg := f.config()
	cfg.DeleteAcked = true
	sub := f.subscribe(t, cfg)
	msg := sub.next(t)
	redistest.Must(t, f.client.XAck(t.Context(), f.key, cfg.Group, id).Err())
	msg.Ack()
	if left := f.entries(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
