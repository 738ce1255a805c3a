package outbox_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/respproxy"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// refersToBody matches a script that refers to a large body. A SET of the same pipeline has stored the body.
func refersToBody(cmd []string) bool {
	return strings.EqualFold(cmd[0], "EVALSHA") && slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasPrefix(arg, "+~") })
}

func storesBody(cmd []string) bool {
	return strings.EqualFold(cmd[0], "SET") && strings.Contains(cmd[1], ":body:")
}

// TestLargeBodyIsNeverLostAndNeverStaysWithoutAnExpiry breaks the connection between the SET of a body and its script, and around
// both. The caller tries again, or is gone.
func TestLargeBodyIsNeverLostAndNeverStaysWithoutAnExpiry(t *testing.T) {
	t.Parallel()
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	y := newYard(t, redistest.Shared(t).Client(t))
	y.tr = newTransactor(t, redistest.Client(t, proxy.Addr()), onePartition, func(c *luatx.Config) { c.Namespace = y.tr.Config().Namespace })
	redistest.Must(t, y.emitLarge("first")) // loads the script

	faults := []struct {
		match  respproxy.Matcher
		action respproxy.Action
		gone   bool // the caller, when the fault has happened
	}{
		{refersToBody, respproxy.CutRequest(), false},
		{refersToBody, respproxy.CutRequest(), true},
		{refersToBody, respproxy.SplitRequest(), false},
		{refersToBody, respproxy.SplitRequest(), true},
		{refersToBody, respproxy.CutReply(), false},
		{refersToBody, respproxy.Duplicate(), false},
		{storesBody, respproxy.CutRequest(), false},
		{storesBody, respproxy.SplitRequest(), false},
		{storesBody, respproxy.CutReply(), false},
		{storesBody, respproxy.Duplicate(), false},
	}
	want := map[string]bool{"first": true}
	abandoned := 0
	for i := range 20 * len(faults) {
		fault, id := faults[i%len(faults)], fmt.Sprint("e", i)
		ctx, leave := context.WithCancel(redistest.Soon(t))
		happened := false
		remove := proxy.On(func(cmd []string) respproxy.Action {
			if happened && !fault.gone || !fault.match(cmd) {
				return respproxy.Pass()
			}
			if happened = true; fault.gone {
				leave()
			}
			return fault.action
		})
		_, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error { return tx.Emit(luatx.Event{ID: id, Body: large(id)}) })
		remove()
		leave()
		if (err != nil) != fault.gone {
			t.Fatalf("%s, whose caller is gone: %t: %v", id, fault.gone, err)
		}
		if fault.gone {
			abandoned++
		} else {
			want[id] = true
		}
	}
	if kept, expiring := y.largeBodies(); kept != len(want) || expiring != abandoned {
		t.Errorf("%d large bodies and %d that expire, want %d and %d", kept, expiring, len(want), abandoned)
	}
	batch, err := y.store.Claim(redistest.Soon(t), y.slot, outbox.Work{Limit: 2 * len(want)})
	redistest.Must(t, err)
	for _, e := range batch.Events {
		whole, err := outbox.Decode(large(e.ID))
		redistest.Must(t, err)
		if !want[e.ID] || e.Err != nil || !bytes.Equal(e.Message.Data, whole.Data) {
			t.Errorf("%s was claimed with %d bytes, %v", e.ID, len(e.Message.Data), e.Err)
		}
	}
	assert.Equal(t, len(batch.Events), len(want), "claimed events")
	_, err = y.store.Sent(redistest.Soon(t), y.slot, outbox.Work{}, slices.Collect(maps.Keys(want))...)
	redistest.Must(t, err)
	if kept, expiring := y.largeBodies(); kept != 0 || expiring != abandoned {
		t.Errorf("%d large bodies and %d that expire, want none and %d", kept, expiring, abandoned)
	}
}

func TestLargeBodiesOfConcurrentTransactionsDoNotMix(t *testing.T) {
	t.Parallel()
	const callers, each = 12, 20
	proxy := redistest.Proxy(t, redistest.Shared(t).Addr())
	y := newYard(t, redistest.Client(t, proxy.Addr()))
	var scripts atomic.Int64
	proxy.On(func(cmd []string) respproxy.Action {
		if refersToBody(cmd) && scripts.Add(1)%10 == 0 {
			return respproxy.CutReply()
		}
		return respproxy.Pass()
	})
	data := func(caller, i int) string {
		return strings.Repeat(fmt.Sprintf("%02d-%02d ", caller, i), 1000+(caller*each+i)*37%5000)
	}
	ctx := redistest.Soon(t)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for i := range each {
				if _, err := y.tr.Transact(ctx, "a", func(tx *luatx.Tx) error {
					return tx.Emit(luatx.Event{ID: fmt.Sprint(caller, "-", i), Data: data(caller, i), Attributes: message.Attributes{"type": "t", "source": "/s"}})
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	batch, err := y.store.Claim(ctx, y.slot, outbox.Work{Limit: 2 * callers * each})
	redistest.Must(t, err)
	assert.Equal(t, len(batch.Events), callers*each, "events")
	for _, e := range batch.Events {
		var caller, i int
		_, err := fmt.Sscanf(e.ID, "%d-%d", &caller, &i)
		redistest.Must(t, err)
		redistest.Must(t, e.Err)
		if want := strconv.Quote(data(caller, i)); string(e.Message.Data) != want {
			t.Errorf("%s has %.40s of %d bytes, want %.40s of %d", e.ID, e.Message.Data, len(e.Message.Data), want, len(want))
		}
	}
}

func TestImportRejectsABodyThatRefersToTheLargeBodyOfAnotherEvent(t *testing.T) {
	t.Parallel()
	y := newYard(t, redistest.Shared(t).Client(t))
	redistest.Must(t, y.emitLarge("1"))
	reference, _ := strings.CutPrefix(keys{t, y.client, y.tr}.hash("entries")["1"], "+")
	line := fmt.Sprintf(`{"slot":%d,"id":"x","body_base64":%q}`, y.slot, base64.StdEncoding.EncodeToString([]byte(reference)))
	result, err := y.store.Import(redistest.Soon(t), strings.NewReader(line))
	if err == nil || !strings.Contains(err.Error(), `line 1: the body begins with '~'`) || result.Imported != 0 {
		t.Errorf("import: %+v, %v", result, err)
	}
	_, err = y.store.Discard(redistest.Soon(t), y.slot, "not needed", "x")
	redistest.Must(t, err)
	y.wantLargeBodies(1)
	e, err := y.store.Show(redistest.Soon(t), y.slot, "1")
	redistest.Must(t, err)
	if !bytes.Equal(e.Body, large("1")) {
		t.Errorf("the large event has a body of %d bytes", len(e.Body))
	}
}
