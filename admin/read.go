package admin

import (
	"context"

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

func (o *Operator) recordRead(ctx context.Context, slot int, what, why string, ids []string) error {
	act := o.act(why[:min(len(why), parts.MaxReason)])
	if err := record(ctx, o.core.Client, o.scripts.Shard(slot).Key(keyAudit), act, what, ids); err != nil {
		return &outbox.StorageError{Op: "record a read", Slot: slot, Err: err}
	}
	return nil
}
