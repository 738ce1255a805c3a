package watermill

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"time"
	"unicode/utf8"

	wm "github.com/ThreeDotsLabs/watermill/message"

	"github.com/luatx/luatx/message"
)

const (
	// metadataAttr is an attribute with the metadata whose names CloudEvents does not allow, as a JSON object.
	metadataAttr = "watermillmetadata"
	// defaultType is the type of a message without one in its metadata.
	defaultType = "watermill.message"
)

// attributeName matches the names that CloudEvents allows.
var attributeName = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// reserved are names with another meaning in a CloudEvent.
var reserved = map[string]bool{
	message.AttrID: true, message.AttrSpecVersion: true, metadataAttr: true, "data": true, message.AttrDataContentType: true,
	message.AttrTime: true, message.AttrExpiryTime: true,
}

// ToRaw converts a Watermill message: its UUID becomes the id, and metadata with valid attribute names become attributes. One
// further attribute holds the other metadata. If the metadata has no source or type, ToRaw sets source and a default type.
func ToRaw(msg *wm.Message, source string) (*message.RawMessage, error) {
	attrs := message.Attributes{message.AttrSource: source, message.AttrType: defaultType}
	rest := map[string]string{}
	for name, value := range msg.Metadata {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, message.Permanent(fmt.Errorf("watermill: metadata %q is not UTF-8; encode it as base64 as base64", name))
		}
		if attributeName.MatchString(name) && !reserved[name] && value != "" {
			attrs[name] = value
		} else {
			rest[name] = value
		}
	}
	if !utf8.ValidString(msg.UUID) {
		return nil, message.Permanent(fmt.Errorf("watermill: UUID %q is not UTF-8; use a UTF-8 UUID; use a UTF-8 UUID", msg.UUID))
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

// FromRaw converts a message, which may be from another program, to a Watermill message. All attributes except the id become
// metadata: text, with times in RFC 3339, bytes in base64 and objects in JSON.
func FromRaw(raw *message.RawMessage) (*wm.Message, error) {
	msg := wm.NewMessage(raw.ID(), raw.Data)
	for name, value := range raw.Attributes {
		switch name {
		case message.AttrID, metadataAttr:
		default:
			msg.Metadata[name] = metadata(value)
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

func metadata(value any) string {
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case json.RawMessage:
		return string(v)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}
	return fmt.Sprint(value)
}
