package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luatx/luatx"
	"github.com/luatx/luatx/internal/identity"
	"github.com/luatx/luatx/internal/slot"
)

// Mark is what the inbox knows of a message.
type Mark struct {
	Slot int
	// Known: the message was applied, and a redelivery changes nothing.
	Known bool
	// Broken is what a failed undo has left to be restored by hand; empty: nothing.
	Broken string
	// Replies of its commands are kept.
	Replies bool
	// Begun is when the generation of the inbox began in which it stands: it was applied then or later. Older: it is not
	// the current one. It is forgotten at the next turn but one, or the next.
	Begun time.Time
	Older bool
}

// Known reports what the inbox knows of a message. The aggregate is part of a message's identity: name the one that the
// message was applied to. For a message without an aggregate, name the tag of its stream in braces, as in {pt6}. The scope
// of inbox.Middleware is the namespace, a slash and the handler's name, unless it was configured. Known changes nothing.
func (o *Operator) Known(ctx context.Context, aggregate string, id luatx.MessageID) (Mark, error) {
	n, named, err := o.place(aggregate, id)
	if err != nil {
		return Mark{}, err
	}
	m, err := o.scripts.Mark(ctx, o.scripts.Shard(n), named.Digest())
	if err == nil && m.Identity != "" && m.Identity != o.scripts.Identity() {
		err = fmt.Errorf("the shard belongs to %q", m.Identity)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("admin: inbox of slot %d: %w", n, err)
	}
	return Mark{n, m.Known, m.Broken, m.Replies, m.Begun, m.Older}, nil
}

// Forget makes the inbox forget a message, so that it is applied again when it is delivered again; it does not deliver it.
// The aggregate is that of Known. Forget reports whether the message was known. The step records who did it and why, as the
// act forget.
//
// What the message did stays done, and is done once more. Its events keep their ids: as long as the outbox knows them, the
// same body adds nothing, and another body is an error. A copy of the first commit that the network still holds back may
// count again: forget no message that is younger than Config.CommitTimeout.
func (o *Operator) Forget(ctx context.Context, aggregate string, id luatx.MessageID, reason string) (bool, error) {
	n, named, err := o.place(aggregate, id)
	switch {
	case err != nil:
		return false, err
	case reason == "" || len(reason) > maxReason:
		return false, fmt.Errorf("admin: forget: the reason has %d bytes: name one of at most %d, it is recorded", len(reason), maxReason)
	}
	ctx, cancel := context.WithTimeout(ctx, o.transactor.Config().CommitTimeout)
	defer cancel()
	known, err := o.scripts.Forget(ctx, o.scripts.Shard(n), o.act(reason), named.Digest(), fmt.Sprintf("%s %s %s %s", aggregate, id.Scope, id.Source, id.ID))
	if err != nil {
		return false, fmt.Errorf("admin: forget in slot %d: %w", n, err)
	}
	return known, nil
}

// maxReason is the longest reason, in bytes.
const maxReason = 1024

// place returns the slot of a message's shard, and the identity that its inbox knows the message by.
func (o *Operator) place(aggregate string, id luatx.MessageID) (int, identity.ID, error) {
	if id.ID == "" || id.Scope == "" {
		return 0, identity.ID{}, errors.New("admin: MessageID.ID and Scope: name the message, and what applies it")
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
