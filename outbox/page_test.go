package outbox_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/shard"
	"github.com/luatx/luatx/internal/test/redistest"
	"github.com/luatx/luatx/outbox"
)

// page reads one page of a listing of up to 100 events.
func (y yard) page(of shard.Listing) (ids []string, page shard.Page) {
	y.t.Helper()
	of.Limit = 100
	scripts := link.Of(y.tr).Scripts
	page, err := scripts.List(redistest.Soon(y.t), scripts.Shard(y.slot), of)
	redistest.Must(y.t, err)
	for _, row := range page.Rows {
		ids = append(ids, row.ID)
	}
	return ids, page
}

// pages reads all pages of a listing, and joins the ids of each.
func (y yard) pages(of shard.Listing) string {
	y.t.Helper()
	var all []string
	for range 10 {
		ids, page := y.page(of)
		all = append(all, strings.Join(ids, " "))
		if !page.More {
			break
		}
		of.After = page.Next
	}
	return strings.Join(all, ", ")
}

// at sets the times of members of an index.
func (y yard) at(index string, ms int64, ids ...string) {
	y.t.Helper()
	for _, id := range ids {
		redistest.Must(y.t, y.client.ZAdd(redistest.Soon(y.t), keys{y.t, y.client, y.tr}.key(index), redis.Z{Score: float64(ms), Member: id}).Err())
	}
}

func TestPageBeginsBehindAnyPlace(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		ids := []string{"first", "B", "a", "a1", "aa", "b", "b0", "é", "last"} // those of one time by their bytes
		y.emit("t", "", "", ids...)
		y.park("odd", ids...)
		y.at("parked", 1000, ids...)
		y.at("parked", 999, ids[0])
		y.at("parked", 1001, ids[len(ids)-1])
		for _, c := range []struct {
			score, member string
			left          int
		}{
			{"998", "z", 9},
			{"999", "", 9},
			{"999", "first", 8},
			{"999", "g", 8},
			{"1000", "", 8},
			{"1000", "B", 7},
			{"1000", "Z", 7},
			{"1000", "a", 6},
			{"1000", "a0", 6},
			{"1000", "a1", 5},
			{"1000", "aa", 4},
			{"1000", "az", 4},
			{"1000", "b", 3},
			{"1000", "b0", 2},
			{"1000", "é", 1},
			{"1000", "\xff", 1},
			{"1001", "last", 0},
			{"1002", "", 0},
		} {
			got, page := y.page(shard.Listing{Of: "parked", After: shard.Place{Score: c.score, Member: c.member}})
			if want := ids[len(ids)-c.left:]; !slices.Equal(got, want) || page.Read != c.left {
				t.Errorf("behind %s %s: %q, want %q", c.score, c.member, got, want)
			}
		}
	})
}

func TestPageEndsAtItsHighestScore(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "leased")
		y.claim(time.Hour)
		y.emit("t", "", "", "1", "2", "3", "pending")
		y.park("odd", "1", "2", "3")
		for i, id := range []string{"1", "2", "3"} {
			y.at("parked", int64(1001+i), id)
		}
		for until, want := range map[int64]string{1000: "[]", 1001: "[1]", 1002: "[1 2]", 1003: "[1 2 3]"} {
			if got, page := y.page(shard.Listing{Of: "parked", Until: time.UnixMilli(until)}); fmt.Sprint(got) != want || page.Read != len(got) || page.More {
				t.Errorf("until %d: %v, %d were read; want %s", until, got, page.Read, want)
			}
		}
		if got, page := y.page(shard.Listing{Of: "pending", Only: "l"}); fmt.Sprint(got) != "[leased]" || page.Read != 1 {
			t.Errorf("%v are leased, %d were read", got, page.Read)
		}
	})
}

// sized returns the body of an event in so many bytes.
func sized(id string, size int) []byte {
	body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":"x"}`, id)
	return append(body[:len(body)-2], strings.Repeat("x", size-len(body))+`"}`...)
}

func TestPageEndsBehindAMebibyteOfBodies(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		for want, sizes := range map[string][]int{"1 2 3, 4": {524_288, 524_288, 100, 100}, "1 2, 3": {524_288, 524_289, 100}, "1 2 3": {100, 524_288, 524_288}} {
			y := newYard(t, client)
			_, err := y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
				for i, size := range sizes {
					id := strconv.Itoa(i + 1)
					if err := tx.Emit(luatx.Event{ID: id, Body: sized(id, size)}); err != nil {
						return err
					}
				}
				return nil
			})
			redistest.Must(t, err)
			if got := y.pages(shard.Listing{Of: "pending", Bodies: true}); got != want {
				t.Errorf("bodies of %v bytes: %s, want %s", sizes, got, want)
			}
		}
	})
}

func TestPagesOfLargeBodiesHaveEachEventOnce(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "", "a", "b")
		heads := []string{"h0", "h1", "h2", "h3", "h4", "h5"}
		_, err := y.tr.Transact(redistest.Soon(t), "a", func(tx *luatx.Tx) error {
			for i, id := range heads {
				for _, e := range []luatx.Event{{ID: id, Body: sized(id, 400_000)}, {ID: fmt.Sprint("w", i), Body: sized("w", 100)}} {
					e.Key = fmt.Sprint("k", i)
					if err := tx.Emit(e); err != nil {
						return err
					}
				}
			}
			return nil
		})
		redistest.Must(t, err)
		want := func(want string, of shard.Listing) {
			t.Helper()
			of.Bodies = true
			if got := y.pages(of); got != want {
				t.Errorf("%s, class %q: %s, want %s", of.Of, of.Class, got, want)
			}
		}
		want("h0 w0 h1 w1 h2, w2 h3 w3 h4 w4 h5, w5", shard.Listing{Of: "waiting"})
		want("h0 h1 h2 h3 h4 h5", shard.Listing{Of: "ids", IDs: heads})
		y.park("even", "a")
		y.park("odd", append([]string{"b"}, heads...)...)
		y.at("parked", 1000, "a", "b")
		y.at("parked", 1001, heads...)
		want("a b h0 h1 h2, h3 h4 h5", shard.Listing{Of: "parked"})
		want("b h0 h1 h2, h3 h4 h5", shard.Listing{Of: "parked", Class: "odd"})
		want("h0 h1 h2, h3 h4 h5", shard.Listing{Of: "blocking"})
		want("h0 h1 h2, h3 h4 h5", shard.Listing{Of: "blocking", Class: "odd"})
	})
}

func TestEventsOfALaneThatIsLostAreListed(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, client redis.UniversalClient) {
		y := newYard(t, client)
		y.emit("t", "", "k", "1", "2")
		redistest.Must(t, client.Del(redistest.Soon(t), keys{t, client, y.tr}.key("lanes")).Err())
		for id, state := range map[string]outbox.State{"1": outbox.Pending, "2": outbox.Waiting} {
			if e := y.want(id, state); e.Key != "k" || e.Behind != "" || e.HoldsBack != 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}
