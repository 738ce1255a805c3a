package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/luatx/luatx"
)

var inboxVerbs = []verb{
	{
		name: "inbox show", args: "id", short: "what the inbox knows of a message",
		long: `luatx inbox show tells whether a message was applied. The exit status is 0 where it was, 1 where it is not known.`,
		flags: func(flags *flag.FlagSet) action {
			m := messageFlags(flags)
			return func(ctx context.Context, s *session, ids []string) error { return s.inboxShow(ctx, m, ids) }
		},
	},
	{
		name: "inbox forget", args: "id", acts: true, short: "forget a message, so that it is applied again when it is delivered again",
		long: `luatx inbox forget makes the inbox forget a message, so that it is applied once more when it is delivered again. It does not
deliver it. What the message did stays done, and is done twice then: it needs --yes and a --reason, which is recorded.
Forget no message that is younger than Config.CommitTimeout.`,
		flags: func(flags *flag.FlagSet) action {
			m := messageFlags(flags)
			reason := flags.String("reason", "", "why, for the audit; required")
			yes := flags.Bool("yes", false, "forget it; without it the inbox is only asked")
			return func(ctx context.Context, s *session, ids []string) error {
				return s.inboxForget(ctx, m, ids, *reason, *yes)
			}
		},
	},
}

// messageName is what names a message beside its id.
type messageName struct{ aggregate, source, scope, handler string }

func messageFlags(flags *flag.FlagSet) *messageName {
	var m messageName
	flags.StringVar(&m.aggregate, "aggregate", "", "the aggregate that the message was applied to: its subject, unless Config.Aggregate names another one; for a message without one, the tag of its stream in braces; required")
	flags.StringVar(&m.source, "source", "", "its source")
	flags.StringVar(&m.handler, "handler", "", "name of the handler that applies it; this or --scope is required")
	flags.StringVar(&m.scope, "scope", "", "inbox.Config.Scope, where the service has set one")
	return &m
}

func (m messageName) id(namespace string, ids []string) (luatx.MessageID, error) {
	switch {
	case len(ids) != 1:
		return luatx.MessageID{}, usageError{errors.New("name one id of a message")}
	case m.aggregate == "":
		return luatx.MessageID{}, usageError{errors.New("--aggregate is missing: it is part of the identity of the message")}
	case (m.handler == "") == (m.scope == ""):
		return luatx.MessageID{}, usageError{errors.New("say --handler, or --scope")}
	}
	id := luatx.MessageID{Scope: m.scope, Source: m.source, ID: ids[0]}
	if m.scope == "" {
		id.Scope = namespace + "/" + m.handler
	}
	return id, nil
}

type markRow struct {
	Slot    int       `json:"slot"`
	ID      string    `json:"id"`
	Known   bool      `json:"known"`
	Since   time.Time `json:"since,omitzero"`
	Replies bool      `json:"replies,omitempty"`
	Broken  string    `json:"broken,omitempty"`
}

func (s *session) inboxShow(ctx context.Context, m *messageName, ids []string) error {
	id, err := m.id(s.namespace, ids)
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
		return toldError{errors.New("the inbox does not know it")}
	}
	return nil
}

func (s *session) inboxForget(ctx context.Context, m *messageName, ids []string, reason string, yes bool) error {
	id, err := m.id(s.namespace, ids)
	switch {
	case err != nil:
		return err
	case reason == "":
		return usageError{errors.New("--reason: say why, it is recorded")}
	case !yes:
		if err := s.inboxShow(ctx, m, ids); err != nil {
			return err
		}
		return errYes
	}
	known, err := s.operator.Forget(ctx, m.aggregate, id, reason)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("the inbox does not know %q", id.ID)
	}
	s.out.row(map[string]any{"id": id.ID, "forgotten": true}, "FORGOTTEN", id.ID)
	return nil
}
