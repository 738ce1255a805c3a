package watermill

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"unicode/utf8"

	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/luatx/luatx/message"
)

const (
	// metadataAttr holds, as a JSON object, the metadata whose names CloudEvents does not allow.
	metadataAttr = "watermillmetadata"
	// defaultType is the type of a message whose metadata has none.
	defaultType = "watermill.message"
)

// attributeName is what CloudEvents allows.
var attributeName = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// reserved are names that stand for something else in a CloudEvent.
var reserved = map[string]bool{
	message.AttrID: true, message.AttrSpecVersion: true, metadataAttr: true, "data": true, message.AttrDataContentType: true,
	message.AttrTime: true, message.AttrExpiryTime: true,
}

// ToRaw makes a message of one of Watermill's: its UUID is the id, its metadata the attributes, as far as their names
// are those of attributes; the rest travels in one attribute. Source and type are given where the metadata has none.
func ToRaw(msg *wm.Message, source string) (*message.RawMessage, error) {
	attrs := message.Attributes{message.AttrSource: source, message.AttrType: defaultType}
	rest := map[string]string{}
	for name, value := range msg.Metadata {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, message.Permanent(fmt.Errorf("watermill: metadata %q is not UTF-8: encode it", name))
		}
		if attributeName.MatchString(name) && !reserved[name] && value != "" {
			attrs[name] = value
		} else {
			rest[name] = value
		}
	}
	if !utf8.ValidString(msg.UUID) {
		return nil, message.Permanent(fmt.Errorf("watermill: UUID %q is not UTF-8", msg.UUID))
	}
	if msg.UUID != "" {
		attrs[message.AttrID] = msg.UUID
	}
	if len(rest) > 0 {
		text, err := json.Marshal(rest)
		if err != nil {
			return nil, fmt.Errorf("watermill: metadata: %w", err)
		}
		attrs[metadataAttr] = string(text)
	}
	return message.NewRaw(msg.Payload, attrs, nil), nil
}

// FromRaw makes a message of Watermill, which may have come from elsewhere: the attributes but the id are its metadata.
func FromRaw(raw *message.RawMessage) (*wm.Message, error) {
	msg := wm.NewMessage(raw.ID(), raw.Data)
	for name, value := range raw.Attributes {
		switch name {
		case message.AttrID, metadataAttr:
		default:
			msg.Metadata[name] = fmt.Sprint(value)
		}
	}
	if text, ok := raw.Attributes[metadataAttr].(string); ok {
		var rest map[string]string
		if err := json.Unmarshal([]byte(text), &rest); err != nil {
			return nil, message.Permanent(fmt.Errorf("watermill: attribute %s: %w", metadataAttr, err))
		}
		maps.Copy(msg.Metadata, rest)
	}
	return msg, nil
}
