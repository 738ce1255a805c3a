package admin

import (
	"context"

	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/outbox"
)

const (
	// auditKept is the approximate number of records that a shard keeps, and auditNamed the number of ids in a record, as in
	// internal/lua/_audit.lua.
	auditKept, auditNamed = 10_000, 100
	keyAudit              = "audit"
)

// RecordRead records in the audit that the operator reads payloads, before they are shown. With events it records the act
// read, and without events the act export. why describes the request.
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
