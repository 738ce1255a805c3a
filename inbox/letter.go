package inbox

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/luatx/luatx/internal/group"
	"github.com/luatx/luatx/internal/inbound"
	"github.com/luatx/luatx/internal/link"
	"github.com/luatx/luatx/internal/slot"
	"github.com/luatx/luatx/internal/streamentry"
	"github.com/luatx/luatx/message"
)

// letter returns the key of the dead-letter stream, and the fields and values of a message that is parked.
func (p *place) letter(ctx context.Context, cause error, attempts int) (key string, fields []any, err error) {
	own := slot.OfTag(p.tx.Tag())
	source, ok := p.msg.InputSource()
	switch {
	case p.cfg.DeadLetter != "":
		key = link.InsideOf(p.tx).TagKey(slot.Text(own), p.cfg.DeadLetter)
	case ok:
		key = group.DeadLetterKey(source.Stream)
	default:
		key = link.InsideOf(p.tx).TagKey(slot.Text(own), p.at.Source, "dead")
	}
	if entry, whole := ctx.Value(group.EntryKey{}).(group.Entry); ok && whole {
		now := time.Now()
		return key, texts(group.Dead{
			Stream: source.Stream, Entry: source.Entry, Group: source.Group, Consumer: source.Consumer, Reason: cause.Error(),
			Deliveries: max(entry.Deliveries(), int64(attempts)), First: now, Last: now, Fields: entry.Fields(),
		}.Write()), nil
	}
	raw, err := p.payload()
	if err != nil {
		return "", nil, err
	}
	raw.Attributes[inbound.AttrReason] = group.Reason(cause.Error())
	fields, err = streamentry.AppendBinary(make([]any, 0, streamentry.BinarySize(raw)), raw)
	return key, fields, err
}

// payload returns a copy of the message as it was delivered, or encoded anew if it never was encoded.
func (p *place) payload() (*message.RawMessage, error) {
	attrs := maps.Clone(p.msg.Attributes)
	if raw, ok := p.msg.Delivered(); ok {
		return message.NewRaw(raw.Data, attrs, nil), nil
	}
	if data, ok := p.msg.Data.([]byte); ok {
		return message.NewRaw(data, attrs, nil), nil
	}
	data, err := json.Marshal(p.msg.Data)
	return message.NewRaw(data, attrs, nil), err
}

func texts(list []string) []any {
	args := make([]any, len(list))
	for i, text := range list {
		args[i] = text
	}
	return args
}
