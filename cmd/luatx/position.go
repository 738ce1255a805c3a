package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"

	"github.com/luatx/luatx/admin"
	ids "github.com/luatx/luatx/internal/group"
)

var positionVerbs = []verb{
	{
		name: "inbox position", short: "list how far each partition of an ordered source was processed (inbox.Position)",
		long: `luatx inbox position lists the positions that inbox.Position stores instead of ids. Each handler, source and partition has one
position in every slot that has processed one of its messages. Messages at or below the offset are duplicates. The generation is
that of the last owner of the partition that committed. Commits of an owner with a lower generation are rejected. luatx inbox
rewind sets positions back.`,
		flags: func(flags *flag.FlagSet) action {
			f := new(admin.InboxPositionFilter)
			flags.StringVar(&f.Scope, "scope", "", "positions of this scope: the namespace and the handler, such as shop/bill, unless inbox.PositionConfig.Scope is set")
			flags.StringVar(&f.Source, "source", "", "positions of this source, such as kafka://orders")
			flags.StringVar(&f.Partition, "partition", "", "positions of this partition")
			slotFlag(flags, "positions", &f.Slots)
			limit := flags.Int("limit", 100, "maximum number of positions to list; 0 lists all")
			return func(ctx context.Context, s *session, _ []string) error { return s.positions(ctx, *f, *limit) }
		},
	},
	{
		name: "inbox rewind", changes: true, acts: true, reasoned: true, short: "set the positions of a partition back, so that its messages are processed again",
		long: `luatx inbox rewind sets the positions of a partition back in every slot. Messages after the new position are processed again when
the source delivers them again. The command does not deliver them. The effects of the first processing stay, so these messages can
take effect twice. A position that is not past the new one keeps its offset. The next commit of a running owner is rejected.

First stop the consumers and rewind. Then make the source deliver again from the new position or an earlier message: delete the
offsets of the Kafka group, delete the durable of JetStream, or set the group of the stream back with XGROUP SETID. Finally start
the consumers.

With --to-start all messages of the partition count as new. Use it also if a source was created again and its offsets start from
the beginning. Commits fail with an epoch error until then.`,
		one: `if the partition has no position`,
		flags: func(flags *flag.FlagSet) action {
			var r rewind
			flags.StringVar(&r.handler, "handler", "", "name of the handler; this or --scope is required")
			flags.StringVar(&r.Scope, "scope", "", "inbox.PositionConfig.Scope of the service, if it is set")
			flags.StringVar(&r.Source, "source", "", "source, such as kafka://orders; required")
			flags.StringVar(&r.Partition, "partition", "", "partition; leave it out for a source without partitions")
			flags.StringVar(&r.Offset, "to", "", "`offset` of the last message that stays processed: a number, or the id of a stream entry; this or --to-start is required")
			flags.BoolVar(&r.start, "to-start", false, "process all messages of the partition again")
			return func(ctx context.Context, s *session, _ []string) error { return s.rewind(ctx, r) }
		},
	},
}

func (s *session) positions(ctx context.Context, f admin.InboxPositionFilter, limit int) error {
	n := 0
	for p, err := range s.operator.InboxPositions(ctx, f) {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			s.out.say("there are more; --limit 0 lists all")
			break
		}
		s.out.position(p)
	}
	if n == 0 {
		s.out.say("no position matches")
	}
	return nil
}

func (p *printer) position(one admin.InboxPosition) {
	p.row(one, "SLOT SCOPE SOURCE PARTITION OFFSET GENERATION EPOCH BROKEN",
		one.Slot, cut(one.Scope), cut(one.Source), cmp.Or(cut(one.Partition), "-"), cmp.Or(one.Offset, "-"), one.Generation, cmp.Or(cut(one.Epoch), "-"), one.Broken)
}

// rewind is the flags of inbox rewind.
type rewind struct {
	admin.Rewind

	handler string
	start   bool
}

func (s *session) rewind(ctx context.Context, r rewind) error {
	switch {
	case (r.handler == "") == (r.Scope == ""):
		return usageError{errors.New("set exactly one of --handler and --scope")}
	case r.Source == "":
		return usageError{errors.New("--source is missing; luatx inbox position lists the sources")}
	case (r.Offset == "") != r.start:
		return usageError{errors.New("set exactly one of --to and --to-start")}
	}
	r.Scope, r.Reason, r.Preview = cmp.Or(r.Scope, s.namespace+"/"+r.handler), s.reason, true
	changes, err := s.operator.Rewind(ctx, r.Rewind)
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fmt.Errorf("no position has the scope %q, the source %q and the partition %q; luatx inbox position lists all", r.Scope, r.Source, r.Partition)
	}
	r.Offset, r.Preview = padded(r.Offset, changes), s.preview
	if changes, err = s.operator.Rewind(ctx, r.Rewind); err != nil {
		return err
	}
	for _, c := range changes {
		s.out.row(c, "SLOT FROM TO BROKEN", c.Slot, cmp.Or(c.From, "-"), cmp.Or(c.To, "-"), c.Broken)
	}
	s.plan(len(changes), "set %s of %s, partition %q, back", counted(len(changes), "position"), r.Source, r.Partition)
	return nil
}

// entryID matches the id of a stream's entry.
var entryID = regexp.MustCompile(`^\d+-\d+$`)

// padded returns an offset with as many digits as the positions have. The empty offset stays empty.
func padded(offset string, positions []admin.Rewound) string {
	if entryID.MatchString(offset) {
		offset = ids.Offset(offset)
	}
	if offset == "" {
		return ""
	}
	digits := 0
	for _, p := range positions {
		digits = max(digits, len(p.From))
	}
	return strings.Repeat("0", max(0, digits-len(offset))) + offset
}
