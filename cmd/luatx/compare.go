package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatx/luatx"
	entryid "github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/mark"
	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

var compareVerb = verb{
	name: "keys compare", needs: newService, args: "stream…", short: "compare the marks of the pipeline mode with the inbox, for the messages of streams",
	long: `luatx keys compare is a dry run of the swap. For the newest messages of each stream it compares the mark of the pipeline mode (the
key that pipeline.SetNX sets) with the mark of the scripted mode (in the inbox of the message's aggregate), and changes nothing.

It prints how many messages have both marks, one of them or none, and names the messages that the two modes identify
differently: messages that share a key in pipeline mode but are different messages for the inbox, or the other way round. If a
message has a mark in pipeline mode only, a scripted stack without Overlap processes it again when it is delivered again.

The flags --mark, --aggregate, --source and --id replace Config.MarkKey, Config.Aggregate and Config.MessageID. In each text,
{name} stands for an attribute of the message. If a flag is missing, the default of that function applies.`,
	one: `if messages are identified differently or cannot be read`,
	flags: func(flags *flag.FlagSet) action {
		var c comparer
		flags.StringVar(&c.handler, "handler", "", "name of the handler that processes the messages; this or --scope is required")
		flags.StringVar(&c.scope, "scope", "", "inbox.Config.Scope of the service, if it is set")
		flags.StringVar(&c.mark, "mark", "", "`text` of the pipeline mode's key, such as 'inbox:{id}' (default the key of pipeline.SetNX: inbox:source:id)")
		flags.StringVar(&c.aggregate, "aggregate", "{subject}", "`text` of the aggregate; if it is empty, the tag of the stream in braces is used")
		flags.StringVar(&c.source, "source", "{source}", "`text` of the identity's source")
		flags.StringVar(&c.id, "id", "{id}", "`text` of the identity's id")
		flags.Int64Var(&c.limit, "limit", 100_000, "maximum `number` of messages to compare in each stream")
		return func(ctx context.Context, s *session, streams []string) error { return s.compare(ctx, c, streams) }
	},
}

// comparer holds the parts that identify a message in either mode.
type comparer struct {
	handler, scope, mark, aggregate, source, id string
	limit                                       int64
}

// names holds the names of one message.
type names struct {
	entry, key, aggregate string
	id                    luatx.MessageID
}

// inbox returns the text by which scripted mode distinguishes messages.
func (n names) inbox() string { return fmt.Sprintf("%q %q %q", n.aggregate, n.id.Source, n.id.ID) }

var placeholder = regexp.MustCompile(`\{[a-z0-9]+\}`)

// expand replaces the placeholders in a text by the attributes of a message.
func expand(text string, attrs message.Attributes) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		value, ok := attrs[name[1:len(name)-1]]
		if !ok {
			return ""
		}
		return fmt.Sprint(value)
	})
}

// name returns the names of a message of a stream in both modes.
func (c comparer) name(key string, entry redis.XMessage) (names, error) {
	msg, err := stream.Unmarshal(entry.ID, entry.Values)
	if err != nil {
		return names{}, err
	}
	n := names{entry: entry.ID, aggregate: expand(c.aggregate, msg.Attributes), id: luatx.MessageID{
		Scope: c.scope, Source: expand(c.source, msg.Attributes), ID: expand(c.id, msg.Attributes),
	}}
	if n.id.ID == "" {
		return names{}, fmt.Errorf("entry %s: --id %s is empty", entry.ID, c.id)
	}
	if n.aggregate == "" {
		_, after, _ := strings.Cut(key, "{")
		tag, _, ok := strings.Cut(after, "}")
		if !ok || tag == "" {
			return names{}, fmt.Errorf("entry %s: --aggregate %s is empty, and the stream has no tag", entry.ID, c.aggregate)
		}
		n.aggregate = "{" + tag + "}"
	}
	n.key = mark.Key(n.id.Source, n.id.ID)
	if c.mark != "" {
		n.key = expand(c.mark, msg.Attributes)
	}
	return n, nil
}

// comparison counts the marks of the messages of a stream.
type comparison struct {
	Stream     string   `json:"stream"`
	Messages   int      `json:"messages"`
	Both       int      `json:"both"`
	Pipeline   int      `json:"pipeline_only"`
	Scripted   int      `json:"scripted_only"`
	Neither    int      `json:"neither"`
	Unreadable int      `json:"unreadable"`
	Different  []string `json:"different,omitempty"`

	byKey, byInbox map[string]names // the first message of each
}

func (s *session) compare(ctx context.Context, c comparer, streams []string) error {
	switch {
	case (c.handler == "") == (c.scope == ""):
		return usageError{errors.New("set exactly one of --handler and --scope")}
	case c.limit < 1:
		return usageError{fmt.Errorf("--limit is %d; use 1 or more", c.limit)}
	}
	if c.scope == "" {
		c.scope = s.namespace + "/" + c.handler
	}
	amiss := false
	var found []*comparison
	for _, key := range streams {
		r := &comparison{Stream: key, byKey: map[string]names{}, byInbox: map[string]names{}}
		if err := s.compareStream(ctx, c, r); err != nil {
			return fmt.Errorf("stream %s: %w", key, err)
		}
		s.out.row(r, "STREAM MESSAGES BOTH PIPELINE-ONLY SCRIPTED-ONLY NEITHER UNREADABLE DIFFERENT",
			key, r.Messages, r.Both, r.Pipeline, r.Scripted, r.Neither, r.Unreadable, len(r.Different))
		amiss = amiss || r.Unreadable > 0 || len(r.Different) > 0
		found = append(found, r)
	}
	for _, r := range found {
		for _, text := range r.Different {
			s.out.say("%s: %s", r.Stream, text)
		}
	}
	if amiss {
		return reportedError{errors.New("the two modes identify some messages differently")}
	}
	return nil
}

// comparePage is the number of entries per read.
const comparePage = 500

func (s *session) compareStream(ctx context.Context, c comparer, r *comparison) error {
	newest := "+"
	for left := c.limit; left > 0; {
		entries, err := s.client.XRevRangeN(ctx, r.Stream, newest, "-", min(left, comparePage)).Result()
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			if err := s.compareEntry(ctx, c, entry, r); err != nil {
				return err
			}
		}
		left -= int64(len(entries))
		newest = entryid.Before(entries[len(entries)-1].ID)
	}
	return nil
}

func (s *session) compareEntry(ctx context.Context, c comparer, entry redis.XMessage, r *comparison) error {
	r.Messages++
	n, err := c.name(r.Stream, entry)
	if err != nil {
		r.Unreadable++
		return nil //nolint:nilerr // it is counted
	}
	r.identify(n)
	marked, err := s.client.Exists(ctx, n.key).Result()
	if err != nil {
		return err
	}
	known, err := s.operator.Known(ctx, n.aggregate, n.id)
	switch {
	case err != nil:
		return err
	case marked > 0 && known.Known:
		r.Both++
	case marked > 0:
		r.Pipeline++
	case known.Known:
		r.Scripted++
	default:
		r.Neither++
	}
	return nil
}

// identify records a message that is a duplicate in only one of the modes.
func (r *comparison) identify(n names) {
	byKey, sameKey := r.byKey[n.key]
	byInbox, sameInbox := r.byInbox[n.inbox()]
	switch {
	case sameKey && byKey.inbox() != n.inbox():
		r.Different = append(r.Different, fmt.Sprintf("entries %s and %s share the mark %q of pipeline mode, but are different messages for the inbox: %s and %s",
			byKey.entry, n.entry, n.key, byKey.inbox(), n.inbox()))
	case sameInbox && byInbox.key != n.key:
		r.Different = append(r.Different, fmt.Sprintf("entries %s and %s are one message for the inbox, %s, but have the marks %q and %q in pipeline mode",
			byInbox.entry, n.entry, n.inbox(), byInbox.key, n.key))
	}
	if !sameKey {
		r.byKey[n.key] = n
	}
	if !sameInbox {
		r.byInbox[n.inbox()] = n
	}
}
