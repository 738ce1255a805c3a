package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/inbox"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/message"
)

// source is a source of messages with positions, whose handler counts them.
type source struct {
	site
	client redis.UniversalClient
	router *message.Router
	tenure *message.Tenure
}

func (s site) source(client redis.UniversalClient) *source {
	s.t.Helper()
	tr := s.service(client)
	router := message.NewRouter(message.PipeConfig{})
	redistest.Must(s.t, errors.Join(
		router.Use(luatx.Middleware(tr), inbox.Position(inbox.PositionConfig{})),
		router.AddHandler("count", nil, message.NewHandler(func(ctx context.Context, msg *message.TypedMessage[any]) ([]*message.Message, error) {
			key, err := tr.Keyspace().Key(msg.Subject(), "count")
			return nil, errors.Join(err, luatx.Queued(luatx.CmdableFromContext(ctx, client).Incr(ctx, key)))
		}, message.Named(""))),
	))
	return &source{s, client, router, &message.Tenure{}}
}

// deliver delivers the messages of an aggregate with these offsets, and returns how many of all were applied.
func (s *source) deliver(aggregate string, offsets ...string) string {
	s.t.Helper()
	for _, offset := range offsets {
		acking := message.NewAckingFrom(message.AckingConfig{Position: message.Position{
			Source: "kafka://orders", Partition: "3", Offset: offset, Epoch: "e1", Tenure: s.tenure,
		}})
		_, err := s.router.Process(redistest.Soon(s.t), message.New(nil, message.Attributes{
			message.AttrID: offset, message.AttrSource: "kafka://orders", message.AttrType: "ordered", message.AttrSubject: aggregate,
		}, acking))
		redistest.Must(s.t, err)
	}
	key, err := s.service(s.client).Keyspace().Key(aggregate, "count")
	redistest.Must(s.t, err)
	return s.client.Get(redistest.Soon(s.t), key).Val()
}

func TestPositionCommandsListAndRewind(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		s.has(s.run(0, "", "inbox", "position"), "no position")
		src := s.source(client)
		if n := src.deliver("a", "0007", "0008", "0009", "0009"); n != "3" {
			t.Errorf("%s messages are applied", n)
		}
		scope := s.namespace + "/count"
		s.has(s.run(0, "", "inbox", "position"), "SLOT SCOPE SOURCE PARTITION OFFSET GENERATION EPOCH BROKEN", scope+" kafka://orders 3 0009 1 e1 false")
		s.has(s.run(0, "", "inbox", "position", "--source", "kafka://other"), "no position")

		with := func(words []string, more ...string) []string { return slices.Concat(words, more) }
		name := []string{"inbox", "rewind", "--handler", "count", "--source", "kafka://orders", "--partition", "3"}
		back := with(name, "--to", "7", "--reason", "wrong price")
		s.has(s.acts(2, "", name...), "--reason")
		s.has(s.acts(2, "", with(name, "--reason", "r")...), "set exactly one of --to and --to-start")
		s.has(s.acts(2, "", with(back, "--to-start")...), "set exactly one of --to and --to-start")
		s.has(s.acts(2, "", "inbox", "rewind", "--source", "kafka://orders", "--to", "7", "--reason", "r"), "set exactly one of --handler and --scope")
		s.has(s.acts(2, "", "inbox", "rewind", "--handler", "count", "--to", "7", "--reason", "r"), "--source is missing")
		s.has(s.acts(1, "", "inbox", "rewind", "--handler", "other", "--source", "kafka://orders", "--to", "7", "--reason", "r", "--yes"), "no position has the scope")
		s.has(s.acts(2, "", back...), "0009 0007 false", "nothing was changed; with --yes it would set 1 position of kafka://orders")
		if n := src.deliver("a", "0008", "0009"); n != "3" {
			t.Errorf("%s messages are applied after the preview", n)
		}
		s.has(s.acts(0, "", with(back, "--yes")...), "0009 0007 false")
		s.has(s.run(0, "", "inbox", "position", "--scope", scope), " 0007 2 e1 false")
		src.tenure = &message.Tenure{} // the consumers start again
		if n := src.deliver("a", "0006", "0007", "0008", "0009"); n != "5" {
			t.Errorf("%s messages are applied after the rewind", n)
		}
		s.has(s.acts(0, "", with(name, "--to-start", "--reason", "created again", "--yes")...), "0009 - false")
		s.has(s.run(0, "", "audit"), "alice reposition 1", "wrong price (to 0007)", "created again")
	})
}

func TestPositionsAreListedAsJSONAndCutAtTheLimit(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		src := s.source(client)
		for i := range 20 { // in all slots
			src.deliver(fmt.Sprint("a", i), fmt.Sprintf("%04d", i))
		}
		s.has(s.run(0, "", "inbox", "position", "--limit", "1"), "there are more")
		status, out, errs := run(redistest.Soon(t), "", append([]string{"inbox", "position", "--json"}, s.flags...)...)
		var one struct {
			Scope, Source, Partition, Offset, Epoch string
			Generation                              int
		}
		rows := strings.Split(strings.TrimSpace(out), "\n")
		err := json.Unmarshal([]byte(rows[0]), &one)
		if err != nil || status != 0 || len(rows) != 4 || one.Scope != s.namespace+"/count" || one.Source != "kafka://orders" || one.Partition != "3" || one.Epoch != "e1" || one.Generation != 1 {
			t.Errorf("status %d, %v: %s%s", status, err, out, errs)
		}
	})
}

func TestOffsetsArePaddedToTheDigitsOfThePositions(t *testing.T) {
	t.Parallel()
	for offset, want := range map[string]string{
		"": "", "7": "0007", "00012": "00012", "0": "0000", "5-3": "0000000000000000000500000000000000000003", "-": "000-",
	} {
		if got := padded(offset, []admin.Rewound{{}, {From: "0009"}}); got != want {
			t.Errorf("padded(%q) is %q, want %q", offset, got, want)
		}
	}
}
