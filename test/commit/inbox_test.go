package commit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/commit"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/internal/test/rig"
)

const knownDigest = "0123456789abcdef"

// setMeta writes the metadata of a generation of the inbox.
func setMeta(t *testing.T, client redis.UniversalClient, tr *luatx.Transactor, generation, start string, older int) {
	t.Helper()
	text := fmt.Sprintf("%s%s%d%013d%s", msOf(time.Now().Add(time.Hour)), start, older, 0, link.Of(tr).Scripts.Identity())
	redistest.Must(t, client.HSet(t.Context(), shardOf(tr).Key(generation), "id", text).Err())
}

func msOf(at time.Time) string { return fmt.Sprintf("%013d", at.UnixMilli()) }

func TestIDInTheInboxIsADuplicateEvenIfTheTransactionIsInvalid(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, generation := range []string{"inbox:a", "inbox:b"} {
			ctx := redistest.Soon(t)
			tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.OutboxCapacity = 1 })
			home, k := link.Of(tr).Scripts.Shard(slot.OfTag("a")), rig.Key(t, tr, "a", "k")
			in := rig.NewInput(t, client, rig.Key(t, tr, "a", "in"))
			foreign := rig.EntryOf(t, in.Deliver("other", rig.Order("1")))
			first := commit.Commit{
				Digest: knownDigest, Token: "base5678\x00\x01", NotAfter: time.Now().Add(time.Minute),
				Events: []shard.Event{{ID: "first", Body: []byte("{}")}},
			}
			_, _, err := rig.Commit(ctx, tr, home, []commit.Commit{first})
			redistest.Must(t, err)
			if generation == "inbox:b" {
				redistest.Must(t, client.Rename(ctx, home.Key("inbox:a"), home.Key("inbox:b")).Err())
				setMeta(t, client, tr, "inbox:a", msOf(time.Now()), 1)
			}
			tombstoned := "tomb5678\x00\x01"
			if _, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, "another digest 0", nil, tombstoned, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			for state, change := range map[commit.State]func(*commit.Commit){
				commit.Committed: func(*commit.Commit) {},
				commit.Expired:   func(c *commit.Commit) { c.NotAfter = time.Now().Add(-time.Hour) },
				"tombstoned":     func(c *commit.Commit) { c.Token = tombstoned },
				commit.Fenced: func(c *commit.Commit) {
					c.Input = commit.Input{Ack: commit.AckFence, Stream: in.Stream, Group: "g", Consumer: "c", Entry: foreign, Strict: true}
				},
				commit.Conflict: func(c *commit.Commit) {
					c.Guards, c.Keys = []commit.Guard{{Order: 'o', Args: []any{"GET", k}, Digest: "another", Size: 1}}, []string{k}
				},
				commit.Full:   func(c *commit.Commit) { c.Events = []shard.Event{{ID: "second", Body: []byte("{}")}} },
				commit.Failed: func(c *commit.Commit) { c.Commands, c.Keys = []commit.Command{{Head: "k00"}}, []string{k} },
			} {
				again := commit.Commit{Digest: knownDigest, Token: "else5678\x00\x01", NotAfter: time.Now().Add(time.Minute)}
				change(&again)
				unknown, want := again, state
				unknown.Digest = fmt.Sprintf("%-16s", state)
				if state == "tombstoned" {
					want = commit.Expired
				}
				for _, batch := range [][]commit.Commit{{again}, {again, unknown}} {
					outcomes, _, err := rig.Commit(ctx, tr, home, batch)
					redistest.Must(t, err)
					assert.Equal(t, outcomes[0].State, commit.Duplicate, "%s, %s in a batch of %d", generation, state, len(batch))
					if len(batch) == 2 && outcomes[1].State != want {
						t.Errorf("%s, an unknown id: %+v, want %s", generation, outcomes[1], want)
					}
				}
			}
		}
	})
}

func TestDamagedMetaOfTheInboxForgetsNoID(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for name, damage := range map[string]func(tr *luatx.Transactor){
			"lost": func(tr *luatx.Transactor) {
				redistest.Must(t, client.HDel(t.Context(), shardOf(tr).Key("inbox:a"), "id").Err())
			},
			"no start":        func(tr *luatx.Transactor) { setMeta(t, client, tr, "inbox:a", "0000000000000", 0) },
			"malformed start": func(tr *luatx.Transactor) { setMeta(t, client, tr, "inbox:a", "soon         ", 0) },
			"future start":    func(tr *luatx.Transactor) { setMeta(t, client, tr, "inbox:a", msOf(time.Now().Add(time.Hour)), 0) },
		} {
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			home := shardOf(tr)
			for _, token := range []string{"base5678\x00\x01", "else5678\x00\x01", "more5678\x00\x01"} {
				outcomes, _, err := rig.Commit(ctx, tr, home, luatxTx(knownDigest, token, time.Now().Add(time.Minute)))
				redistest.Must(t, err)
				if want := map[bool]commit.State{true: commit.Committed, false: commit.Duplicate}[token[0] == 'b']; outcomes[0].State != want {
					t.Errorf("%s: %s became %v, want %s", name, token[:4], outcomes[0], want)
				}
				damage(tr)
			}
			if state, _, _, err := link.Of(tr).Commits.Resolve(ctx, home, knownDigest, nil, "", time.Time{}); err != nil || state != commit.Duplicate {
				t.Errorf("%s: resolve returned %s, %v", name, state, err)
			}
		}
	})
}

func TestResolveFindsAnIDInEitherGeneration(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for _, generation := range []string{"inbox:a", "inbox:b"} {
			ctx, tr := redistest.Soon(t), rig.NewTransactor(t, client)
			home := shardOf(tr)
			resolve := func(digest, token string, until time.Time, want commit.State, wanted string) {
				t.Helper()
				state, text, _, err := link.Of(tr).Commits.Resolve(ctx, home, digest, nil, token, until)
				if err != nil || state != want || text != wanted {
					t.Errorf("%s: %s, %s: %s %q, %v, want %s %q", generation, digest, token, state, text, err, want, wanted)
				}
			}
			if generation == "inbox:b" {
				setMeta(t, client, tr, "inbox:a", msOf(time.Now()), 1)
			} else {
				resolve("of no commit yet", "base5678\x00\x01", time.Time{}, commit.Absent, "")
				resolve("of no commit yet", "base5678\x00\x01", time.Now().Add(time.Hour), commit.Tombstoned, "")
			}
			redistest.Must(t, client.HSet(ctx, home.Key(generation), knownDigest, "base5678\x00\x01", "of one at fault!", "base5678\x00\x01!").Err())
			redistest.Must(t, client.HSet(ctx, home.Key("broken"), "of one at fault!", "not restored").Err())
			resolve(knownDigest, "base5678\x00\x02", time.Time{}, commit.Replayed, "")
			resolve(knownDigest, "else5678\x00\x01", time.Time{}, commit.Duplicate, "")
			resolve("of one at fault!", "base5678\x00\x01", time.Time{}, commit.Broken, "not restored")
			resolve("another digest 0", "base5678\x00\x01", time.Time{}, commit.Absent, "")
		}
	})
}
