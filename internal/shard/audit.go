package shard

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/internal/eval"
)

// Record is an entry of an audit stream. outbox.Record explains its fields.
type Record struct {
	Slot          int
	At            time.Time
	Operation     string
	Call          int
	Who, Act, Why string
	Done, Asked   int
	IDs           []string
}

// Audit reads records of a shard, beginning with an id, oldest first. It returns the id of the last record.
func (s *Scripts) Audit(ctx context.Context, shard Shard, from string, limit int64) (records []Record, last string, err error) {
	entries, err := s.client.XRangeN(ctx, shard.Key(keyAudit), from, "+", limit).Result()
	for _, e := range entries {
		records, last = append(records, ParseRecord(shard.Slot, e)), e.ID
	}
	return records, last, err
}

// ParseRecord parses an entry of an audit stream. Slot is the slot of the stream.
func ParseRecord(slot int, entry redis.XMessage) Record {
	text := func(name string) string { return eval.Word(entry.Values[name]) }
	number := func(name string) int {
		n, _ := strconv.Atoi(text(name))
		return n
	}
	ms, _, _ := strings.Cut(entry.ID, "-")
	r := Record{
		Slot: slot, At: eval.Moment(ms), Operation: text("operation"), Call: number("call"), Who: text("who"),
		Act: text("act"), Why: text("why"), Done: number("done"), Asked: number("asked"),
	}
	_ = json.Unmarshal([]byte(text("ids")), &r.IDs) // a record that was written by hand has no ids
	return r
}
