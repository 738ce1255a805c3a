package repair_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/test/assert"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/repair"
)

// ofCounts reports whether a finding is about the counts of a shard.
func ofCounts(line string) bool {
	return strings.HasPrefix(line, "value counts/") || strings.HasPrefix(line, "value parked:by/")
}

const (
	firstHeader  = "0000000000000002lane"
	firstMember  = "lane\x000000000000000002\x00first"
	secondMember = "lane\x000000000000000003\x00second"
	thirdMember  = "lane\x000000000000000004\x00third"
)

// orderInvariants are the invariants of lanes, of operators' requests, and of the counts. A furnished shard has a lane of three:
// the first event is pending, and the others wait.
var orderInvariants = []invariant{
	{"head in no index", [][]any{{"ZREM", "@pending", "first"}}, []string{"unindexed pending/first"}},
	{"parked head", [][]any{{"ZREM", "@pending", "first"}, {"ZADD", "@parked", 1, "first"}}, nil},
	{"behind the head and pending", [][]any{{"ZADD", "@pending", 1, "second"}}, []string{"misplaced pending/second"}},
	{"head that is gone", [][]any{{"HDEL", "@entries", "first"}}, []string{
		"leftover headers/first", "orphan lanes/first", "orphan pending/first", "unindexed pending/second",
	}},
	{"head that was sent", [][]any{{"HSET", "@entries", "first", digest}, {"ZREM", "@pending", "first"}, {"ZADD", "@sent", 1, "first"}}, []string{
		"leftover headers/first", "orphan lanes/first", "unindexed pending/second",
	}},
	{"not in its lane", [][]any{{"ZREM", "@lanes", secondMember}}, []string{"unindexed lanes/second"}},
	{"head not in its lane", [][]any{{"ZREM", "@lanes", firstMember}}, []string{
		"misplaced pending/first", "unindexed lanes/first", "unindexed pending/second", // after the repair, the first one is the head again
	}},
	{"lanes lost", [][]any{{"DEL", "@lanes"}}, []string{
		"unindexed lanes/first", "unindexed lanes/second", "unindexed lanes/third", "unindexed pending/second", "unindexed pending/third",
	}},
	{"headers lost", [][]any{{"DEL", "@headers"}}, []string{
		"unindexed pending/second", "unindexed pending/third", "unlinked headers/first", "unlinked headers/second", "unlinked headers/third",
	}},
	{"two places in lanes", [][]any{{"ZADD", "@lanes", 0, "other\x000000000000000001\x00second"}}, []string{"orphan lanes/second"}},
	{"no place in a lane", [][]any{{"ZADD", "@lanes", 0, "lane"}}, []string{"orphan lanes/lane"}},
	{"place of nobody", [][]any{{"ZADD", "@lanes", 0, "lane\x000000000000000001\x00x"}}, []string{"orphan lanes/x"}},
	{"place out of order", [][]any{{"ZADD", "@lanes", 1, thirdMember}}, []string{"value lanes/third"}},
	{"header that is none", [][]any{{"HSET", "@headers", "pending", "lane"}}, []string{"value headers/pending"}},
	{"header of nobody", [][]any{{"HSET", "@headers", "x", firstHeader}}, []string{"leftover headers/x"}},
	{"lanes of another type", [][]any{{"SET", "@lanes", "v"}}, []string{"type lanes"}},
	{"route of nobody", [][]any{{"HSET", "@routes", "x", "d"}}, []string{"leftover routes/x"}},
	{"audit of another type", [][]any{{"SET", "@audit", "v"}}, []string{"type audit"}},
	{"erased and pending", [][]any{{"HSET", "@entries", "pending", "!" + digest[1:]}}, []string{"misplaced pending/pending", "unindexed parked/pending"}},
	{"parked and sent", [][]any{{"HSET", "@entries", "parked", digest}}, []string{
		"leftover attempts/parked", "leftover errors/parked", "misplaced parked/parked", "unindexed sent/parked",
	}},
	{"due before all times", [][]any{{"ZADD", "@pending", "-inf", "pending"}}, []string{"value pending/pending"}},
	{"counts that are off", [][]any{{"HINCRBY", "@counts", "bytes", 1}, {"HINCRBY", "@counts", "parked_bytes", 1}}, []string{
		"value counts/bytes", "value counts/parked_bytes",
	}},
	{"counts without the mark of parked events", [][]any{{"HINCRBY", "@counts", "bytes", -1 << 51}}, []string{"value counts/bytes"}},
	{"malformed counts", [][]any{{"HSET", "@counts", "bytes", "many", "parked_bytes", "few"}}, []string{"value counts/bytes", "value counts/parked_bytes"}},
	{"lost counts", [][]any{{"DEL", "@counts"}}, []string{"value counts/bytes", "value counts/parked_bytes"}},
	{"counts of parked events that are off", [][]any{{"HINCRBY", "@parked:by", "t:t", 1}, {"HSET", "@parked:by", "t:x", 0}, {"HDEL", "@parked:by", "d:"}}, []string{
		"value parked:by/d:", "value parked:by/t:t", "value parked:by/t:x",
	}},
	{"counts of another type", [][]any{{"DEL", "@counts"}, {"SET", "@counts", "v"}}, []string{"type counts"}},
}

func TestHeadOfALaneIsFoundBehindManyMembersWithoutABody(t *testing.T) {
	t.Parallel()
	redistest.Servers(t, func(t *testing.T, client redis.UniversalClient) {
		for _, gone := range []int{100, 250} {
			s := newShop(t, client)
			s.furnish(t)
			command, want := []any{"ZADD", "@lanes"}, []string{}
			for i := range gone {
				id := fmt.Sprintf("gone%03d", i)
				command, want = append(command, 0, "lane\x000000000000000000\x00"+id), append(want, "orphan lanes/"+id)
			}
			s.damage(t, command)
			assert.Equal(t, fmt.Sprint(named(t, newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t)))), fmt.Sprint(want), "findings")
			healed(t, t, s)
		}
	})
}

func TestFindingAboutALaneShowsTheMemberWithoutNULs(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		s := newShop(t, client)
		s.furnish(t)
		s.damage(t, []any{"ZADD", "@lanes", 0, "lane\x000000000000000001\x00x"})
		var details []string
		for f, err := range newWorker(t, s.tr, repair.Config{}).Check(redistest.Soon(t)) {
			redistest.Must(t, err)
			details = append(details, f.Detail)
		}
		assert.Equal(t, fmt.Sprintf("%q", details), `["lane 0000000000000001 x"]`, "details")
	})
}
