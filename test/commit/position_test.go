package commit_test

import (
	"fmt"
	"strings"
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

// places are positions of a shard by their fields, beside the notes of rollback failures.
type places struct {
	t      *testing.T
	client redis.UniversalClient
	tr     *luatx.Transactor
	home   shard.Shard
	n      int
}

func newPlaces(t *testing.T, client redis.UniversalClient) *places {
	tr := rig.NewTransactor(t, client, func(c *luatx.Config) { c.NoCompile = true })
	return &places{t: t, client: client, tr: tr, home: link.Of(tr).Scripts.Shard(slot.OfTag("a"))}
}

// field returns a new field with a record, unless that is empty, and a note, unless that is empty.
func (p *places) field(record, note string) string {
	p.t.Helper()
	p.n++
	field := fmt.Sprint("scope\x00orders\x00", p.n)
	if record != "" {
		redistest.Must(p.t, p.client.HSet(p.t.Context(), p.home.PositionsKey(), field, record).Err())
	}
	if note != "" {
		redistest.Must(p.t, p.client.HSet(p.t.Context(), p.home.Key("broken"), field, note).Err())
	}
	return field
}

func (p *places) record(field string) string {
	return p.client.HGet(p.t.Context(), p.home.PositionsKey(), field).Val()
}

// commit moves a position, with commands on the key k.
func (p *places) commit(position commit.Position, token string, commands ...commit.Command) commit.Outcome {
	p.t.Helper()
	batch := []commit.Commit{{
		Digest: fmt.Sprintf("%016d", p.n), Token: token, NotAfter: time.Now().Add(time.Minute), Position: &position,
		Keys: []string{rig.Key(p.t, p.tr, "a", "k"), rig.Key(p.t, p.tr, "a", "wrong")}, Commands: commands,
	}}
	outcomes, _, err := rig.Commit(redistest.Soon(p.t), p.tr, p.home, batch)
	redistest.Must(p.t, err)
	return outcomes[0]
}

func TestRecordOfAPositionDecidesWhetherATransactionMovesIt(t *testing.T) {
	t.Parallel()
	const token, committed = "base5678\x00\x01", "base5678\x00\x0109 7 e"
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPlaces(t, client)
		k := rig.Key(t, p.tr, "a", "k")
		for name, c := range map[string]struct {
			record, note, token, offset, after string
			generation                         int64
			want                               commit.Outcome
		}{
			"none":                               {"", "", token, "01", "", 7, commit.Outcome{State: commit.Committed}},
			"none, after another message":        {"", "", token, "01", "00", 7, commit.Outcome{State: commit.Early}},
			"below":                              {committed, "", token, "10", "", 7, commit.Outcome{State: commit.Committed}},
			"below, after the committed message": {committed, "", token, "10", "09", 8, commit.Outcome{State: commit.Committed}},
			"below, after a later message":       {committed, "", token, "11", "10", 7, commit.Outcome{State: commit.Early, Text: "09"}},
			"the same token":                     {committed, "", token, "09", "", 7, commit.Outcome{State: commit.Replayed, Same: true}},
			"another attempt":                    {committed, "", "base5678\x00\x02", "09", "", 7, commit.Outcome{State: commit.Replayed}},
			"another delivery":                   {committed, "", "another8\x00\x01", "09", "", 7, commit.Outcome{State: commit.Duplicate}},
			"beyond":                             {committed, "", token, "08", "", 7, commit.Outcome{State: commit.Duplicate}},
			"a former owner's":                   {committed, "", token, "10", "", 6, commit.Outcome{State: commit.Fenced}},
			"set back by an operator":            {committed[:10] + " 7 ", "", token, "01", "", 7, commit.Outcome{State: commit.Committed}},
			"of another epoch":                   {committed[:10] + "09 7 f", "", token, "10", "", 7, commit.Outcome{State: commit.Epoch, Text: "f"}},
			"of another length": {committed, "", token, "100", "", 7, commit.Outcome{
				State: commit.Failed, Text: "offset 100 has another length than the stored 09",
			}},
			"malformed":                    {"token", "", token, "10", "", 7, commit.Outcome{State: commit.Failed, Text: "the position is malformed"}},
			"broken":                       {committed[:10] + "09!7 e", "not restored", token, "10", "", 7, commit.Outcome{State: commit.Broken, Text: "not restored"}},
			"broken, and the note is gone": {committed[:10] + "09!7 e", "", token, "10", "", 7, commit.Outcome{State: commit.Broken}},
		} {
			field := p.field(c.record, c.note)
			position := commit.Position{Field: field, Offset: c.offset, After: c.after, Owner: commit.OwnerOf(c.generation, "e")}
			got := p.commit(position, c.token, rig.Set(k, "v"))
			got.Replies = nil
			record := c.record
			if c.want.State == commit.Committed {
				record = c.token + c.offset + position.Owner
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) || p.record(field) != record {
				t.Errorf("%s: %+v and the record %q, want %+v and %q", name, got, p.record(field), c.want, record)
			}
		}
		redistest.Must(t, client.Del(t.Context(), p.home.PositionsKey()).Err(), client.Set(t.Context(), p.home.PositionsKey(), "no hash", 0).Err())
		got := p.commit(commit.Position{Field: "f", Offset: "10", Owner: commit.OwnerOf(7, "e")}, token, rig.Set(k, "v"))
		if got.State != commit.Failed || got.Index != 0 || !strings.Contains(got.Text, "WRONGTYPE") {
			t.Errorf("no hash: %+v", got)
		}
	})
}

func TestFailedTransactionLeavesItsPositionAsItWas(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPlaces(t, client)
		wrong := rig.Key(t, p.tr, "a", "wrong")
		redistest.Must(t, client.Set(t.Context(), wrong, "text", 0).Err())
		for _, record := range []string{"", "token00009" + "09 7 e"} {
			field := p.field(record, "")
			got := p.commit(commit.Position{Field: field, Offset: "10", Owner: commit.OwnerOf(8, "e")}, "base5678\x00\x01",
				rig.Set(rig.Key(t, p.tr, "a", "k"), "v"), commit.Command{Head: "h04", Args: []any{"HSET", wrong, "f", "v"}})
			if got.State != commit.Failed || got.Index != 2 || p.record(field) != record {
				t.Errorf("%+v, the record %q has become %q", got, record, p.record(field))
			}
		}
	})
}

func TestResolveReadsTheOutcomeFromTheRecordOfThePosition(t *testing.T) {
	t.Parallel()
	const token, committed = "base5678\x00\x01", "base5678\x00\x0109 7 e"
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPlaces(t, client)
		for name, c := range map[string]struct {
			record, note, token, offset, epoch string
			want                               commit.State
		}{
			"none":              {"", "", token, "09", "e", commit.Absent},
			"the same":          {committed, "", token, "09", "e", commit.Replayed},
			"another attempt":   {committed, "", "base5678\x00\x02", "09", "e", commit.Replayed},
			"another delivery":  {committed, "", "another8\x00\x01", "09", "e", commit.Duplicate},
			"no token":          {committed, "", "", "09", "e", commit.Duplicate},
			"a later one":       {committed, "", token, "08", "e", commit.Duplicate},
			"an earlier one":    {committed, "", token, "10", "e", commit.Absent},
			"without an epoch":  {committed[:10] + "09 7 ", "", token, "09", "", commit.Replayed},
			"of another epoch":  {committed, "", token, "08", "f", commit.Absent},
			"malformed":         {"token", "", token, "09", "e", commit.Absent},
			"broken":            {committed[:10] + "09!7 e", "not restored", token, "10", "e", commit.Broken},
			"broken, no note":   {committed[:10] + "09!7 e", "", token, "10", "e", commit.Broken},
			"nothing committed": {committed[:10] + " 7 ", "", token, "01", "", commit.Absent},
		} {
			position := &commit.Position{Field: p.field(c.record, c.note), Offset: c.offset, Owner: commit.OwnerOf(7, c.epoch)}
			state, text, _, err := link.Of(p.tr).Commits.Resolve(redistest.Soon(t), p.home, "", position, c.token, time.Time{})
			if err != nil || state != c.want || text != c.note {
				t.Errorf("%s: %s %q, %v, want %s %q", name, state, text, err, c.want, c.note)
			}
		}
	})
}

func TestRepositionSetsAPositionBackForALaterOwner(t *testing.T) {
	t.Parallel()
	const committed, none = "base5678\x00\x0109 7 e", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		p := newPlaces(t, client)
		for name, c := range map[string]struct {
			record, offset string
			generation     int64
			letter         byte
			want           string
		}{
			"none":                         {"", "05", 8, shard.ActUnknown, ""},
			"back":                         {committed, "05", 8, shard.ActDone, none + "05 8 e"},
			"to where it is":               {committed, "09", 8, shard.ActDone, committed[:10] + "09 8 e"},
			"forward":                      {committed, "10", 8, shard.ActDone, committed[:10] + "09 8 e"},
			"to the beginning":             {committed, "", 8, shard.ActDone, committed[:10] + " 8 "},
			"of another length":            {committed, "005", 8, shard.ActState, committed},
			"of a later generation":        {committed[:10] + "09 10 e", "05", 9, shard.ActDone, none + "05 10 e"},
			"from the beginning":           {committed[:10] + " 7 ", "05", 8, shard.ActDone, committed[:10] + " 8 "},
			"broken":                       {committed[:10] + "09!7 e", "05", 8, shard.ActDone, none + "05 8 e"},
			"malformed":                    {"base5678\x00\x01words", "05", 8, shard.ActDone, committed[:10] + " 8 "},
			"malformed, to the beginning":  {"base5678\x00\x01words", "", 8, shard.ActDone, committed[:10] + " 8 "},
			"nothing committed, beginning": {committed[:10] + " 7 ", "", 8, shard.ActDone, committed[:10] + " 8 "},
		} {
			note := ""
			if c.record != "" {
				note = "not restored"
			}
			field := p.field(c.record, note)
			act := shard.Act{Operation: name, Call: 1, Who: "alice", Why: "drill"}
			letter, err := link.Of(p.tr).Scripts.Reposition(redistest.Soon(t), p.home, act, field, "name of "+name, c.generation, c.offset)
			if err != nil || letter != c.letter || p.record(field) != c.want {
				t.Errorf("%s: %c, %v, %q, want %c, %q", name, letter, err, p.record(field), c.letter, c.want)
			}
			noted := client.HExists(t.Context(), p.home.Key("broken"), field).Val()
			assert.Equal(t, noted, c.letter == shard.ActState, "%s: the note is there", name)
			records, _, err := link.Of(p.tr).Scripts.Audit(redistest.Soon(t), p.home, "-", 100)
			redistest.Must(t, err)
			if c.letter == shard.ActDone && fmt.Sprint(records[len(records)-1].IDs) != "[name of "+name+"]" {
				t.Errorf("%s: the audit has %+v", name, records[len(records)-1])
			}
		}
	})
}
