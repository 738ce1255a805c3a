package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/outbox"
)

const (
	// auditKept is about how many records a shard keeps, auditNamed how many ids a record names: as internal/lua/_audit.lua has them.
	auditKept, auditNamed = 10_000, 100
	keyAudit              = "audit"
)

// RecordRead records in the audit that the operator reads payloads, before they are shown. With events, the act
// is read; without, it is export. why describes the request.
func (o *Operator) RecordRead(ctx context.Context, why string, events ...outbox.Event) error {
	if len(events) == 0 {
		return o.recordRead(ctx, o.transactor.Keyspace().Slots()[0], "export", why, nil)
	}
	bySlot := map[int][]string{}
	for _, e := range events {
		bySlot[e.Slot] = append(bySlot[e.Slot], e.ID)
	}
	for slot, ids := range bySlot {
		if err := o.recordRead(ctx, slot, "read", why, ids); err != nil {
			return err
		}
	}
	return nil
}

func (o *Operator) recordRead(ctx context.Context, slot int, act, why string, ids []string) error {
	named, err := json.Marshal(append([]string{}, ids[:min(len(ids), auditNamed)]...))
	if err != nil {
		return fmt.Errorf("admin: record a read: %w", err)
	}
	err = o.core.Client.XAdd(ctx, &redis.XAddArgs{
		Stream: o.scripts.Shard(slot).Key(keyAudit), MaxLen: auditKept, Approx: true,
		Values: []any{
			"operation", rand.Text()[:16], "call", 1, "who", o.core.Name, "act", act, "why", why[:min(len(why), parts.MaxReason)],
			"done", len(ids), "asked", len(ids), "ids", named, "answers", strings.Repeat("d", len(ids)),
		},
	}).Err()
	if err != nil {
		return &outbox.StorageError{Op: "record a read", Slot: slot, Err: err}
	}
	return nil
}
