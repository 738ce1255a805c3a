package stream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/luatx/luatx/internal/msgpack"
	"github.com/luatx/luatx/internal/streamentry"
	"github.com/luatx/luatx/message"
)

// The fields of entries that Watermill and Dapr write.
const (
	fieldWatermillID = "_watermill_message_uuid"
	fieldPayload     = "payload"
	fieldMetadata    = "metadata"
)

// watermillName is the metadata key in which Watermill's CQRS component stores the type of a message.
const watermillName = "name"

// UnmarshalWatermill decodes an entry that Watermill wrote. The UUID becomes the id, and the payload the data. Metadata
// become attributes; their names are changed to lower case and lose everything but letters and digits, so that
// correlation_id becomes correlationid. The type is the metadata type, or else name. Errors wrap message.ErrDecode.
func UnmarshalWatermill(id string, values map[string]any) (*message.RawMessage, error) {
	metadata, err := textMap(fieldBytes(values, fieldMetadata))
	if err != nil {
		return nil, fmt.Errorf("stream: entry %s: %w: field %q: %w", id, message.ErrDecode, fieldMetadata, err)
	}
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion}
	spread(attrs, metadata)
	if attrs.Type() == "" && metadata[watermillName] != "" {
		attrs[message.AttrType] = metadata[watermillName]
	}
	attrs[message.AttrID] = fieldText(values, fieldWatermillID)
	if attrs.ID() == "" {
		attrs[message.AttrID] = id
	}
	return message.NewRaw(fieldBytes(values, fieldPayload), attrs, nil), nil
}

// textMap decodes a MessagePack map of texts. Empty data counts as an empty map.
func textMap(data []byte) (map[string]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	values, err := msgpack.ReadMap(data)
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string, len(values))
	for name, value := range values {
		switch value.(type) {
		case string, []byte:
			texts[name] = fieldText(values, name)
		default:
			return nil, fmt.Errorf("%q is a %T, want a text", name, value)
		}
	}
	return texts, nil
}

// UnmarshalDapr decodes an entry that Dapr wrote. The field data holds a CloudEvent as JSON, or the data itself if the
// payload is raw. Metadata, a JSON object of strings, become attributes as in UnmarshalWatermill, unless the event has an
// attribute of that name. Errors wrap message.ErrDecode.
func UnmarshalDapr(id string, values map[string]any) (*message.RawMessage, error) {
	metadata, err := daprMetadata(values)
	if err != nil {
		return nil, fmt.Errorf("stream: entry %s: %w: field %q: %w", id, message.ErrDecode, fieldMetadata, err)
	}
	msg := message.NewRaw(fieldBytes(values, fieldData), message.Attributes{}, nil)
	if isEvent(msg.Data) {
		if msg, err = unmarshalStructured(values); err != nil {
			return nil, fmt.Errorf("stream: entry %s: %w", id, err)
		}
	}
	spread(msg.Attributes, metadata)
	for name, value := range map[string]string{message.AttrSpecVersion: message.SpecVersion, message.AttrID: id} {
		if msg.Attributes[name] == nil || msg.Attributes[name] == "" {
			msg.Attributes[name] = value
		}
	}
	return msg, nil
}

// isDapr reports whether an entry has only the fields data and metadata, and metadata is a JSON object of strings.
func isDapr(values map[string]any) bool {
	if len(values) != 2 || values[fieldData] == nil || values[fieldMetadata] == nil {
		return false
	}
	_, err := daprMetadata(values)
	return err == nil
}

func daprMetadata(values map[string]any) (metadata map[string]string, err error) {
	if text := fieldBytes(values, fieldMetadata); len(text) > 0 {
		err = json.Unmarshal(text, &metadata)
	}
	return metadata, err
}

// isEvent reports whether data is a CloudEvent as JSON.
func isEvent(data []byte) bool {
	var event struct {
		SpecVersion string `json:"specversion"`
	}
	return json.Unmarshal(data, &event) == nil && event.SpecVersion != ""
}

// spread adds metadata to attrs without replacing attributes. A name that is valid as it is has precedence over a changed
// one.
func spread(attrs message.Attributes, metadata map[string]string) {
	names := slices.SortedFunc(maps.Keys(metadata), func(a, b string) int {
		if exact := isAttributeName(a); exact != isAttributeName(b) {
			if exact {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		plain := attributeName(name)
		if plain == "" || attrs[plain] != nil {
			continue
		}
		if v, err := streamentry.Value(plain, metadata[name]); err == nil {
			attrs[plain] = v
		}
	}
}

// attributeName changes a name to one that CloudEvents allow. It returns "" if nothing is left, or if the name is reserved.
func attributeName(name string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return -1
		}
	}, name)
	if !isAttributeName(plain) {
		return ""
	}
	return plain
}
