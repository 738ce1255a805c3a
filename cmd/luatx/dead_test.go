package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/stream"
)

// giveUp writes n dead letters of a stream and a group.
func giveUp(t testing.TB, client redis.UniversalClient, key, group, reason string, n int) {
	t.Helper()
	for i := range n {
		redistest.Must(t, client.XAdd(redistest.Soon(t), &redis.XAddArgs{Stream: stream.DeadLetterKey(key), Values: []any{
			"dead-reason", reason, "dead-stream", key, "dead-entry", fmt.Sprint("1-", i), "dead-group", group, "dead-consumer", "c",
			"dead-deliveries", 3, "dead-first", 1_700_000_000_000, "dead-last", 1_700_000_060_000,
			"ce_specversion", "1.0", "ce_id", fmt.Sprint(group, i), "ce_type", "sold", "ce_source", "/shop", "data", `{"card":"4111"}`,
		}}).Err())
	}
}

func TestDeadLettersAreListedShownRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		keys := stream.PartitionKeys(s.service(client).Keyspace(), "orders")
		redistest.Must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: keys[0], Values: []string{"f", "v"}}).Err())
		giveUp(t, client, keys[0], "billing", "no such\x1b[2J bank", 3)
		giveUp(t, client, keys[3], "mails", "no such box", 2)
		first := func(group string) string {
			op, err := admin.NewOperator(s.service(client), admin.OperatorConfig{Client: client, Name: "test"})
			redistest.Must(t, err)
			for l, err := range op.DeadLetters("orders").List(redistest.Soon(t), admin.DeadLetterFilter{Group: group}) {
				redistest.Must(t, err)
				return l.ID
			}
			return ""
		}
		s.has(s.run(0, "", "dead", "list", "orders"), first("billing")+" "+keys[0]+" billing", " 3 sold no such·[2J bank", keys[3]+" mails")
		if text := s.run(0, "", "dead", "list", "orders", "--group", "mails"); strings.Contains(text, "billing") {
			t.Errorf("the filter means all: %s", text)
		}
		s.has(s.run(0, "", "dead", "list", "orders", "--limit", "2"), "there are more")
		s.has(s.run(0, "", "dead", "list", "orders", "--text", "nothing"), "no dead letter")
		s.has(s.run(1, "", "dead", "list", "nobody"), "no stream")
		shown := s.run(0, "", "dead", "show", "orders", first("billing"))
		s.has(shown, "group billing", "first delivery 2023-11-14T22:13:20Z", "delivery 3 2023-11-14T22:14:20Z no such·[2J bank")
		if strings.Contains(shown, "4111") {
			t.Errorf("the data is shown: %s", shown)
		}
		s.has(s.acts(0, "", "dead", "show", "orders", first("billing"), "--body"), "4111")
		s.has(s.acts(0, "", "dead", "show", "orders", first("billing"), "--body", "--json"), `"body":{"card":"4111"}`)
		s.has(s.run(1, "", "dead", "show", "orders", "1-1"), "1-1")
		s.has(s.run(2, "", "dead", "show", "orders"), "id is missing; give one or more")

		s.has(s.acts(2, "", "dead", "retry", "orders", "--text", "bank"), "--reason")
		s.has(s.acts(2, "", "dead", "retry", "orders", "--reason", "r", "--yes"), "--all")
		s.has(s.acts(2, "", "dead", "retry", "--reason", "r", "--all", "--yes"), "give exactly one stream")
		s.has(s.acts(2, "", "dead", "retry", "orders", "--text", "bank", "--reason", "mended"), "3 0 - billing=3", "with --yes it would put 3 dead letters back")
		s.has(s.acts(0, "", "dead", "retry", "orders", "--text", "bank", "--reason", "mended", "--dry-run"), "3 0 - billing=3")
		s.has(s.acts(0, "", "dead", "retry", "orders", "--text", "bank", "--limit", "2", "--reason", "mended", "--yes"), "2 2 -")
		if n := client.XLen(t.Context(), keys[0]).Val(); n != 3 {
			t.Errorf("%d entries", n)
		}
		s.has(s.acts(1, "", "dead", "retry", "orders", first("billing"), "--canary", "1", "--canary-wait", "1ms", "--reason", "mended", "--yes"), "stopped by the canary")

		id := first("mails")
		s.has(s.acts(2, "", "dead", "discard", "orders", id, "--reason", "late"), id, "1 0 - mails=1", "it would discard 1 dead letter for good")
		s.has(s.acts(0, "", "dead", "discard", "orders", id, "--reason", "late", "--yes"), "1 1 -")
		s.has(s.acts(1, "", "dead", "discard", "orders", id, "--reason", "late", "--yes"), "0 of 1")
		s.has(s.acts(1, "", "dead", "discard", "orders", id, "--reason", "late"), "none of the ids")
		s.has(s.run(0, "", "audit"), "alice read 1", "alice retry 2", "alice discard 1", "late: 1 ids", `mended: text="bank"`)
	})
}

func TestExportedDeadLettersAreImportedOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		key := "{" + redistest.Tag(t) + "}:mails"
		giveUp(t, client, key, "g", "no such box", 3)
		name := filepath.Join(t.TempDir(), "dead.jsonl")
		s.has(s.acts(0, "", "dead", "export", key, "-o", name), "EXPORTED 3")
		text, err := os.ReadFile(name)
		if err != nil || strings.Count(string(text), "\n") != 3 || !strings.Contains(string(text), `"reason":"no such box"`) {
			t.Errorf("%v: %s", err, text)
		}
		s.acts(0, "", "dead", "discard", key, "--all", "--reason", "kept", "--yes")
		s.has(s.acts(2, "", "dead", "import", key, name), "--reason")
		s.has(s.acts(2, "", "dead", "import", key, "--reason", "r"), "give exactly one file")
		s.has(s.acts(2, "", "dead", "import", key, name, "--reason", "again"), "READ MISSING SKIPPED 3 3 -", "it would import 3 dead letters")
		s.has(s.acts(1, `{"stream":"other","fields":["a","b"]}`, "dead", "import", key, "-", "--reason", "again"), "line 1: the stream")
		s.has(s.acts(0, "", "dead", "import", key, name, "--reason", "again", "--yes"), "3 3 -")
		s.has(s.acts(0, string(text), "dead", "import", key, "-", "--reason", "again", "--yes"), "3 0 known=3")
		s.has(s.acts(0, string(text), "dead", "import", key, "-", "--reason", "again"), "3 0 known=3")
		s.has(s.run(0, "", "audit"), "alice export 0", "alice discard 3", "alice import 3")
	})
}

func TestLimitAndRepeatedIDsAreNoPartialFailure(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, client redis.UniversalClient, s site) {
		key := "{" + redistest.Tag(t) + "}:mails"
		giveUp(t, client, key, "g", "no such box", 3)
		op, err := admin.NewOperator(s.service(client), admin.OperatorConfig{Client: client, Name: "test"})
		redistest.Must(t, err)
		var ids []string
		for l, err := range op.DeadLetters(key).List(redistest.Soon(t), admin.DeadLetterFilter{}) {
			redistest.Must(t, err)
			ids = append(ids, l.ID)
		}
		s.has(s.acts(0, "", "dead", "discard", key, ids[0], ids[0], "--reason", "r", "--yes"), "1 1 -")
		s.has(s.acts(0, "", "dead", "discard", key, ids[1], ids[2], "--limit", "1", "--reason", "r", "--yes"), "1 1 -")
		s.has(s.acts(1, "", "dead", "discard", key, ids[1], ids[2], "--limit", "2", "--reason", "r", "--yes"), "1 of 2 were discarded")
		s.acts(0, lines("network", "1", "2"), "parked", "import", "-", "--yes")
		s.has(s.acts(0, "", "parked", "rearm", "1", "2", "--limit", "1", "--yes"), "1 1 0 -")
		s.has(s.acts(1, "", "parked", "rearm", "1", "2", "--limit", "2", "--yes"), "1 of 2 were re-armed")
	})
}
