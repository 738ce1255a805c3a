package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/outbox"
)

// ids processes a message in an empty Redis and returns the ids of its three events.
func ids(t testing.TB, namespace, handler string, msg *message.Message) []string {
	t.Helper()
	_, client := redistest.Mini(t)
	tr := newTransactor(t, client, func(c *luatx.Config) { c.Namespace = namespace })
	r := router(t, handler, outputs(1, 2, 3), scripted(tr, outbox.Config{})...)
	_, err := r.Process(redistest.Soon(t), msg)
	redistest.Must(t, err)
	var ids []string
	for _, event := range claimed(t, tr) {
		ids = append(ids, string(event.Data)+" "+event.ID())
	}
	slices.Sort(ids) // by position: the data begin with it
	if len(ids) != 3 {
		t.Fatalf("%d events", len(ids))
	}
	return ids
}

func TestOnlyAReplayOfAMessageCreatesTheSameEventIDs(t *testing.T) {
	t.Parallel()
	first := ids(t, "shop", "bill", order("1"))
	if again := ids(t, "shop", "bill", order("1")); !slices.Equal(first, again) {
		t.Errorf("a second run: %v, want %v", again, first)
	}
	web := order("1")
	web.Attributes["source"] = "/web"
	seen := make(map[string]string)
	for name, list := range map[string][]string{
		"first":             first,
		"another namespace": ids(t, "depot", "bill", order("1")),
		"another handler":   ids(t, "shop", "ship", order("1")),
		"another message":   ids(t, "shop", "bill", order("2")),
		"another source":    ids(t, "shop", "bill", web),
	} {
		for _, text := range list {
			_, id, _ := strings.Cut(text, " ")
			if other, taken := seen[id]; taken || id == "" {
				t.Errorf("%s shares the id %q with %s", name, id, other)
			}
			seen[id] = name
		}
	}
}

// TestOutputsBecomeEventsAndAreNotPassedOn also checks that a failed run leaves no events and does not change the ids of the
// next run.
func TestOutputsBecomeEventsAndAreNotPassedOn(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		ctx, tr := redistest.Soon(t), newTransactor(t, client)
		text, err := tr.Keyspace().Key("a", "text")
		redistest.Must(t, err)
		client.Set(ctx, text, "x", 0)
		plain := message.New(nil, message.Attributes{"type": "sold", "subject": "a"}, nil)
		given := message.New([]byte(`{"n": 1}`), message.Attributes{"type": "sold", "id": redistest.Tag(t)}, nil)
		directed := message.New([]byte{0, 1}, message.Attributes{"type": "lost", "destination": "elsewhere"}, nil)
		runs, promised := 0, []string(nil)
		r := router(t, "bill", func(ctx context.Context) ([]*message.Message, error) {
			tx, _ := luatx.TxFromContext(ctx)
			promised = append(promised, tx.EventID())
			if runs++; runs == 1 {
				luatx.CmdableFromContext(ctx, client).LPush(ctx, text, "wrong type")
			}
			return []*message.Message{plain, given, directed}, nil
		}, scripted(tr, outbox.Config{Destination: func(msg *message.Message) (string, error) { return "by-" + msg.Type(), nil }})...)

		failed := new(luatx.CommandError)
		if _, err := r.Process(ctx, order("1")); !errors.As(err, &failed) {
			t.Errorf("a command of the wrong type: %v", err)
		}
		if left := claimed(t, tr); len(left) != 0 {
			t.Errorf("a transaction that failed left %d events", len(left))
		}
		passed, err := r.Process(ctx, order("1"))
		if err != nil || passed != nil {
			t.Errorf("%d outputs were passed on, error %v", len(passed), err)
		}
		if promised[0] != promised[1] {
			t.Errorf("the first run would have made %s, the second made %s", promised[0], promised[1])
		}
		want := map[string]struct{ data, destination string }{
			promised[1]: {"", "by-sold"},
			given.ID():  {`{"n": 1}`, "by-sold"},
		}
		for _, event := range claimed(t, tr) {
			w, ok := want[event.ID()]
			if event.Type() == "lost" {
				w, ok = struct{ data, destination string }{"\x00\x01", "elsewhere"}, true
			}
			if !ok || string(event.Data) != w.data || event.Destination() != w.destination {
				t.Errorf("event %s: data %q, destination %q, want %+v", event.ID(), event.Data, event.Destination(), w)
			}
			delete(want, event.ID())
		}
		if len(want) != 0 {
			t.Errorf("events that are missing: %v", want)
		}
		if plain.ID() != "" || plain.Destination() != "" {
			t.Errorf("the handler's own message was changed: %v", plain.Attributes)
		}
	})
}

// TestInvalidOutputPreventsTheCommit also checks that the error names the output.
func TestInvalidOutputPreventsTheCommit(t *testing.T) {
	t.Parallel()
	_, client := redistest.Mini(t)
	nowhere := errors.New("nowhere to go")
	for name, c := range map[string]struct {
		data any
		cfg  outbox.Config
		says string
		is   error
	}{
		"no destination": {1, outbox.Config{Destination: func(*message.Message) (string, error) { return "", nowhere }}, "outbox: output 0: destination: ", nowhere},
		"no fields":      {1, outbox.Config{MarshalFunc: func(*message.Message) (map[string]any, error) { return nil, nowhere }}, "outbox: output 0: marshal: ", nowhere},
		"no JSON":        {make(chan int), outbox.Config{}, "outbox: output 1: luatx: event ", message.ErrEncode},
	} {
		tr := newTransactor(t, client)
		written, err := tr.Keyspace().Key("a", "k")
		redistest.Must(t, err)
		r := router(t, "bill", func(ctx context.Context) ([]*message.Message, error) {
			luatx.CmdableFromContext(ctx, client).Set(ctx, written, 1, 0)
			return outputs(0, c.data)(ctx)
		}, scripted(tr, c.cfg)...)
		msg := order("1")
		_, err = r.Process(redistest.Soon(t), msg)
		if err == nil || !errors.Is(err, c.is) || !strings.HasPrefix(err.Error(), c.says) || msg.Err() == nil {
			t.Errorf("%s: %v, nacked with %v", name, err, msg.Err())
		}
		if client.Exists(redistest.Soon(t), written).Val() != 0 || len(claimed(t, tr)) != 0 {
			t.Errorf("%s: a part was committed", name)
		}
	}
}
