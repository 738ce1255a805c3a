package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/luatx/luatx"
)

var inboxVerbs = []verb{
	{
		name: "inbox show", args: "id", short: "show whether a message was processed",
		long: `luatx inbox show shows whether a message was processed. The inbox stores a digest of the aggregate, the scope, the source and the
id. All four must be those of the message. If one differs, the inbox does not find the message.`,
		one: `if the message is not in the inbox`,
		flags: func(flags *flag.FlagSet) action {
			m := messageFlags(flags)
			return func(ctx context.Context, s *session, ids []string) error { return s.inboxShow(ctx, m, ids[0]) }
		},
	},
	{
		name: "inbox forget", args: "id", changes: true, acts: true, reasoned: true, short: "forget a message, so that its next delivery is processed again",
		long: `luatx inbox forget deletes a message from the inbox, so that its next delivery is processed again. The command does not deliver
the message. The effects of the first processing stay, so the message can take effect twice. Do not forget messages that are
younger than Config.CommitTimeout and one second.`,
		one: `if the message is not in the inbox`,
		flags: func(flags *flag.FlagSet) action {
			m := messageFlags(flags)
			return func(ctx context.Context, s *session, ids []string) error { return s.inboxForget(ctx, m, ids[0]) }
		},
	},
}

// messageName identifies a message in addition to its id.
type messageName struct {
	aggregate, scope, handler string
	source                    *string // nil if not given
}

func messageFlags(flags *flag.FlagSet) *messageName {
	var m messageName
	flags.StringVar(&m.aggregate, "aggregate", "", "aggregate of the message: its subject, unless Config.Aggregate returns another one; if it has none, the tag of its stream in braces; required")
	flags.Func("source", "`source` of the message; use '' for a message without one; required", func(text string) error { m.source = &text; return nil })
	flags.StringVar(&m.handler, "handler", "", "name of the handler that processes it; this or --scope is required")
	flags.StringVar(&m.scope, "scope", "", "inbox.Config.Scope of the service, if it is set")
	return &m
}

func (m messageName) id(namespace, id string) (luatx.MessageID, error) {
	switch {
	case m.aggregate == "":
		return luatx.MessageID{}, usageError{errors.New("--aggregate is missing; it is part of the identity of the message")}
	case m.source == nil:
		return luatx.MessageID{}, usageError{errors.New("--source is missing; it is part of the identity of the message, use --source '' if the message has none")}
	case (m.handler == "") == (m.scope == ""):
		return luatx.MessageID{}, usageError{errors.New("set exactly one of --handler and --scope")}
	}
	return luatx.MessageID{Scope: cmp.Or(m.scope, namespace+"/"+m.handler), Source: *m.source, ID: id}, nil
}

type markRow struct {
	Slot    int       `json:"slot"`
	ID      string    `json:"id"`
	Known   bool      `json:"known"`
	Since   time.Time `json:"since,omitzero"`
	Replies bool      `json:"replies,omitempty"`
	Broken  string    `json:"broken,omitempty"`
}

func (s *session) inboxShow(ctx context.Context, m *messageName, name string) error {
	id, err := m.id(s.namespace, name)
	if err != nil {
		return err
	}
	mark, err := s.operator.Known(ctx, m.aggregate, id)
	if err != nil {
		return err
	}
	known := "no"
	if mark.Known {
		known = "yes"
	}
	s.out.row(markRow{mark.Slot, id.ID, mark.Known, mark.Begun.UTC(), mark.Replies, mark.Broken},
		"SLOT ID APPLIED AT-OR-AFTER BROKEN", mark.Slot, id.ID, known, when(mark.Begun), cut(mark.Broken))
	if !mark.Known {
		return m.unknown(id, mark.Slot)
	}
	return nil
}

func (s *session) inboxForget(ctx context.Context, m *messageName, name string) error {
	if s.preview {
		s.plan(1, "forget the message %s", name)
		return s.inboxShow(ctx, m, name)
	}
	id, err := m.id(s.namespace, name)
	if err != nil {
		return err
	}
	known, err := s.operator.Forget(ctx, m.aggregate, id, s.reason)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("the inbox does not have the id %q", id.ID)
	}
	s.out.row(map[string]any{"id": id.ID, "forgotten": true}, "FORGOTTEN", id.ID)
	return nil
}

// unknown returns the error for a message that is not in the inbox. It names everything that identifies the message.
func (m messageName) unknown(id luatx.MessageID, slot int) error {
	return fmt.Errorf("the inbox of slot %d does not have the id %q with the source %q, the scope %q and the aggregate %q; the message was not processed, or one of these values differs",
		slot, id.ID, id.Source, id.Scope, m.aggregate)
}
