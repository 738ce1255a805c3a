package commit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/luatx/luatx/internal/command"
	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/shard"
)

// A draw generates random transactions.
type draw struct {
	*rand.Rand

	tag string
}

func (d draw) one(of ...string) string { return of[d.IntN(len(of))] }

// kinds are the commands of random transactions, with a letter for each argument: k a key, f a field, v a value, n a number, m a number
// that is added.
var kinds = strings.Split(strings.TrimSpace(`
SET k v
SET k v EX 100
SET k v KEEPTTL
SETNX k v
GETSET k v
GETDEL k
APPEND k v
SETRANGE k n v
INCR k
INCRBY k m
DECR k
DECRBY k m
INCRBYFLOAT k n
HSET k f v
HSET k f v f v f v
HSETNX k f v
HINCRBY k f n
HINCRBYFLOAT k f n
HMSET k f v f v
GET k
HGET k f
HMGET k f f
TTL k
LLEN k
SADD k v
DEL k
ZADD k n v
RPUSH k v v
`), "\n")

// values are commands that set keys before a transaction; k is the key.
var values = strings.Split(strings.TrimSpace(`
SET k 7
SET k 7 PX 5000000
SET k 007
SET k -7
SET k -99999999999999
SET k 999999999999999
SET k 1000000000000000
SET k 9007199254740990
SET k 9223372036854775807
SET k word
SET k 12345678901234567890123456789012345678901234567890
HSET k a 1 b word
HSET k a 9007199254740990 b 1 c 12345678901234567890123456789012345678901234567890
HSET k a 9223372036854775807
HSET k z 1
RPUSH k a b
SADD k a
ZADD k 1 a
`), "\n")

// denied lists commands that a user may not be allowed to run. Transactions, events and the undo use them.
var denied = strings.Fields("hincrby set getrange strlen exists pexpiretime pexpireat unlink incr incrby append zadd zrem zcount zcard xack hdel")

// deniable returns the denied commands without those that commit.lua needs for the undo of a counter and a compiled script does not
// need. The check at the start refuses a user without them.
func (k kind) deniable() []string {
	if !slices.ContainsFunc(k.commands, func(words []string) bool { return isCounter(words[0]) }) {
		return denied
	}
	return slices.DeleteFunc(slices.Clone(denied), func(name string) bool { return name == "getrange" || name == "exists" })
}

func (d draw) command(words []string, key string) Command {
	args := make([]any, len(words))
	for i, word := range words {
		switch word {
		case "k":
			args[i] = key
		case "f":
			args[i] = d.one("a", "b", "c", "d")
		case "v":
			args[i] = d.one("", "x", "1", "some text")
		case "n":
			args[i] = d.one("0", "1", "5", "-3", "10")
		case "m":
			args[i] = d.one("0", "1", "-3", "5000000000", "-99999999999999", "999999999999999", "1000000000000000", "9223372036854775807", "-9223372036854775808", "01", "x")
		default:
			args[i] = word
		}
	}
	return recorded(args)
}

func recorded(args []any) Command {
	spec, err := command.Lookup(args)
	if err != nil {
		panic(err)
	}
	return Command{Head: spec.Head(args), Args: args}
}

// kind describes the transactions of one plan.
type kind struct {
	positioned bool
	commands   [][]string
	events     int
	ack        Ack
	delay      time.Duration
}

func (d draw) kind() kind {
	k := kind{positioned: d.IntN(3) == 0, events: d.IntN(3), ack: [...]Ack{AckNone, AckFence, AckFused, AckFused}[d.IntN(4)], delay: time.Duration(d.IntN(2)) * time.Minute}
	for range d.IntN(5) {
		k.commands = append(k.commands, strings.Fields(d.one(kinds...)))
	}
	return k
}

// batch returns the transactions of a kind, with separate keys. It returns them twice, so that the senders do not share
// them.
func (d draw) batch(home shard.Shard, k kind) [2][]*Commit {
	var both [2][]*Commit
	for i := range 1 + max(0, d.IntN(8)-3) {
		c := Commit{
			Shard: home, Digest: fmt.Sprintf("digest%010d", i), Token: fmt.Sprintf("token%05d", i),
			NotAfter: time.Now().Add(time.Hour), Delay: k.delay,
		}
		switch d.IntN(30) {
		case 0:
			c.NotAfter = time.Now().Add(-time.Minute)
		case 1:
			c.Digest = "digest0000000000"
		case 2:
			c.Token = "token00000"
		}
		if k.ack != AckNone {
			c.Input = Input{Ack: k.ack, Stream: d.tag + "stream", Group: "g", Consumer: "c", Entry: fmt.Sprintf("%d-0", i+1)}
		}
		if k.positioned {
			c.Position = d.position(i)
		}
		for n := range k.events {
			id := fmt.Sprintf("event %d of %d", n, i)
			if d.IntN(30) == 0 {
				id = "event 0 of 0"
			}
			c.Events = append(c.Events, shard.Event{ID: id, Body: []byte(strings.Repeat("x", 1+d.IntN(80)))})
		}
		for n, words := range k.commands {
			at := n
			if d.IntN(6) == 0 {
				at = d.IntN(n + 1) // of an earlier command
			}
			key := fmt.Sprintf("%sk%d-%d", d.tag, i, at)
			c.Commands = append(c.Commands, d.command(words, key))
			if !slices.Contains(c.Keys, key) {
				c.Keys = append(c.Keys, key)
			}
		}
		for n := range both {
			twin := c
			both[n] = append(both[n], &twin)
		}
	}
	return both
}

const hour = int64(time.Hour / time.Millisecond) // the retention

// metaOf returns the field id of an inbox.
func metaOf(start int64, older string, horizon int64, identity string) string {
	return fmt.Sprintf("%013d%013d%s%013d%s", start+hour, start, older, horizon, identity)
}

// idle marks the bytes of an outbox, see internal/lua/_bytes.lua.
const idle = "1125899906842624"

// crowd fills an outbox up to one of its bounds.
func (d draw) crowd(ctx context.Context, w *twins, home shard.Shard) {
	key, most := home.Key, d.one("parked", "sent", "pending")
	for i := range 6 + d.IntN(9) {
		id := fmt.Sprint("other ", i)
		w.do(ctx, "HSET", key("entries"), id, "body")
		w.do(ctx, "ZADD", key(d.one("parked", "sent", "pending", most, most, most, most, most)), "1", id)
	}
	if d.IntN(9) == 0 {
		w.do(ctx, "DEL", key("sent"))
		w.do(ctx, "SET", key("sent"), "another type")
	}
	bytes := d.one("2251799813685248", "2251799813686138", "3377699720527872", "0", "20", "890")
	w.do(ctx, "HSET", key("counts"), "bytes", bytes, "parked_bytes", d.one("5", "599", "600", "words"))
}

// prepare sets the keys of a shard and of transactions to a random state.
func (d draw) prepare(ctx context.Context, w *twins, home shard.Shard) {
	key, now := home.Key, time.Now().UnixMilli()
	switch d.IntN(24) {
	case 0: // no transaction yet
	case 1:
		w.do(ctx, "SET", key("inbox:a"), "no hash")
	case 2:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", 0, "another"))
	case 3:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", now+hour, "i"), d.one("ttoken00000", "ttoken00001"), "1")
	case 4:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-hour-1000, "0", 0, "i"), "digest0000000001", "token00009")
	case 5:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-3*hour, "0", 0, "i"), "digest0000000000", "token00009")
	case 6:
		w.do(ctx, "HSET", key("inbox:a"), "id", d.one(
			metaOf(now+hour, "0", 0, "i"), fmt.Sprintf("%013d%013d0%013di", now-1, now-hour/2, 0), fmt.Sprintf("%013d%013d0%013di", now+hour, now-2*hour, 0),
			metaOf(now, "0", 0, "in"), "1"+metaOf(now, "0", 0, "i"), metaOf(now, "0", 0, "i")[1:]))
	case 7:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "1", 0, "i"))
		w.do(ctx, "HSET", key("inbox:b"), "id", metaOf(now-hour, "0", 0, "i"), d.one("digest0000000000", "digest0000000001", "other"), "token00009")
	case 8:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now, "0", 0, "i"), "digest0000000000", d.one("token00000", "token00001", "another000", "token00000!"))
		w.do(ctx, "HSET", key("broken"), "digest0000000000", "ZREM pending: denied")
	default:
		w.do(ctx, "HSET", key("inbox:a"), "id", metaOf(now-d.Int64N(hour/2), "0", 0, "i"))
	}
	for i := range 2 {
		if record := d.record(); record != "" {
			w.do(ctx, "HSET", key("positions"), fmt.Sprintf("orders/%d", i), record)
		}
	}
	if d.IntN(30) == 0 {
		w.do(ctx, "SET", key("positions"), "no hash")
	}
	switch d.IntN(30) {
	case 0:
	case 1:
		w.do(ctx, "HSET", key("counts"), "bytes", d.one("0", "890", "words", "-7", idle, "1125899906843514"), "left", "2")
	case 2:
		w.do(ctx, "SET", key(d.one("counts", "entries", "pending")), "another type")
	case 3:
		w.do(ctx, "HSET", key("entries"), "event 0 of 0", d.one("another body", "", "=da39a3ee5e6b4b0d3255bfef95601890afd80709"))
		w.do(ctx, "HSET", key("counts"), "bytes", d.one("12", "1125899906842636"))
	case 4:
		w.do(ctx, "HSET", key("counts"), "bytes", "5", "left", "4")
		w.do(ctx, "ZADD", key("pending"), d.one("1", "9999999999999"), "another")
	case 5, 6:
		d.crowd(ctx, w, home)
	default:
		w.do(ctx, "HSET", key("counts"), "bytes", d.one("0", idle), "duplicate", "1")
	}
	for i := range 8 {
		for n := range 4 {
			if d.IntN(4) == 0 {
				words := strings.Fields(d.one(values...))
				args := make([]any, len(words))
				for at, word := range words {
					args[at] = word
				}
				args[1] = fmt.Sprintf("%sk%d-%d", d.tag, i, n)
				w.do(ctx, args...)
				if d.IntN(2) == 0 {
					w.do(ctx, "HPEXPIRE", args[1], 5000000, "FIELDS", 1, d.one("a", "b", "c")) // since Redis 7.4
				}
			}
		}
	}
	d.input(ctx, w)
}

// stream creates a stream with entries that are pending for consumer c.
func (d draw) stream(ctx context.Context, w *twins) string {
	stream := d.tag + "stream"
	for i := range 8 {
		w.do(ctx, "XADD", stream, fmt.Sprintf("%d-0", i+1), "f", "v")
	}
	w.do(ctx, "XGROUP", "CREATE", stream, "g", "0")
	w.do(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", stream, ">")
	return stream
}

// input creates a stream whose entries may be pending for another consumer, or not at all.
func (d draw) input(ctx context.Context, w *twins) {
	stream := d.stream(ctx, w)
	switch d.IntN(20) {
	case 0:
		w.takeOver(ctx, stream, d.one("1-0", "2-0"))
	case 1:
		w.takeOver(ctx, stream, "8-0")
	case 2:
		w.do(ctx, "SET", group.TakenKey(stream), "no hash")
	case 3:
		w.do(ctx, "DEL", stream)
	}
}
