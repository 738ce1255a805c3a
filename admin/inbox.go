package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/admin/internal/parts"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/slot"
)

// Mark describes the entry of a message in the inbox.
type Mark struct {
	Slot int `json:"slot"`
	// Known reports that the message was applied. A redelivery changes nothing.
	Known bool `json:"known"`
	// Broken names the changes that a failed rollback left, which an operator must restore. It is empty if there are none.
	Broken string `json:"broken"`
	// Replies reports that the replies of its commands are kept.
	Replies bool `json:"replies"`
	// Begun is the time at which the entry's generation of the inbox began; the message was applied then or later. If Older
	// is set, it is the previous generation, which the next rotation removes. Otherwise the one after that removes it.
	Begun time.Time `json:"begun,omitzero"`
	Older bool      `json:"older"`
}

// Known returns the entry of a message in the inbox. It changes nothing. The aggregate is part of the identity: name the one
// that the message was applied to, or for a message without an aggregate the tag of its stream in braces, as in {pt6}. The
// scope of inbox.Middleware is the namespace, a slash and the handler's name, unless it was configured.
func (o *Operator) Known(ctx context.Context, aggregate string, id luatx.MessageID) (Mark, error) {
	n, named, err := o.place(aggregate, id)
	if err != nil {
		return Mark{}, err
	}
	m, err := o.scripts.Mark(ctx, o.scripts.Shard(n), named.Sum().Digest())
	if err == nil && m.Identity != "" && m.Identity != o.scripts.Identity() {
		err = fmt.Errorf("the shard belongs to %q", m.Identity)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("admin: inbox of slot %d: %w", n, err)
	}
	return Mark{n, m.Known, m.Broken, m.Replies, m.Begun, m.Older}, nil
}

// Forget removes a message from the inbox, so that a redelivery applies it again. It does not deliver the message. The aggregate
// is that of Known. Forget reports whether the message was in the inbox. The audit records the act forget with the operator's
// name and the reason.
//
// The first effect of the message stays, and a redelivery adds a second one. The events keep their ids: while the outbox
// remembers them, the same body adds nothing, and another body is an error. A delayed copy of the first commit may take effect
// again, so do not forget a message that is younger than Config.CommitTimeout and one second.
func (o *Operator) Forget(ctx context.Context, aggregate string, id luatx.MessageID, reason string) (bool, error) {
	n, named, err := o.place(aggregate, id)
	switch {
	case err != nil:
		return false, err
	case reason == "" || len(reason) > parts.MaxReason:
		return false, fmt.Errorf("admin: forget: the reason has %d bytes; set a reason of 1 to %d bytes for the audit", len(reason), parts.MaxReason)
	}
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	known, err := o.scripts.Forget(ctx, o.scripts.Shard(n), o.act(reason), named.Sum().Digest(), fmt.Sprintf("%s %s %s %s", aggregate, id.Scope, id.Source, id.ID))
	if err != nil {
		return false, fmt.Errorf("admin: forget in slot %d: %w", n, err)
	}
	return known, nil
}

// place returns the slot of a message's shard, and the digest of its identity.
func (o *Operator) place(aggregate string, id luatx.MessageID) (int, identity.ID, error) {
	if id.ID == "" || id.Scope == "" {
		return 0, identity.ID{}, errors.New("admin: MessageID.ID or Scope is empty; set both")
	}
	named := identity.ID{Aggregate: aggregate, Scope: id.Scope, Source: id.Source, ID: id.ID}
	if tag, ok := strings.CutPrefix(aggregate, "{"); ok && len(tag) > 1 && strings.HasSuffix(tag, "}") {
		return slot.OfTag(tag[:len(tag)-1]), named, nil
	}
	tag, err := o.transactor.Keyspace().Tag(aggregate)
	if err != nil {
		return 0, identity.ID{}, err
	}
	return slot.OfTag(tag), named, nil
}
