package kafka

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/luatx/luatx/message"
	"github.com/luatx/luatx/stream"
)

const (
	headerVersion     = "ce_" + message.AttrSpecVersion
	headerContentType = "content-type"
	fieldData         = "data" // of stream's binary mode, whose other fields have the names of Kafka's headers

	contentTypes   = "application/cloudevents"
	typeStructured = contentTypes + "+json; charset=UTF-8"
)

// encode encodes an event as headers and value. Errors wrap message.ErrEncode.
func encode(event *message.RawMessage, structured bool) (headers []kgo.RecordHeader, value []byte, err error) {
	for _, name := range []string{message.AttrID, message.AttrSource, message.AttrType} {
		if text, _ := event.Attributes[name].(string); text == "" {
			return nil, nil, fmt.Errorf("%w: event %q has no %s, which CloudEvents require", message.ErrEncode, event.ID(), name)
		}
	}
	if structured {
		value, err = event.MarshalJSON()
		return []kgo.RecordHeader{{Key: headerContentType, Value: []byte(typeStructured)}}, value, err
	}
	if isStructured(event.DataContentType()) {
		return nil, nil, fmt.Errorf("%w: datacontenttype %q denotes structured mode; use PublisherConfig.Structured", message.ErrEncode, event.DataContentType())
	}
	fields, err := stream.Binary(event)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		switch v := fields[i+1].(type) {
		case []byte:
			value = v
		case string:
			if !utf8.ValidString(name) || !utf8.ValidString(v) {
				return nil, nil, fmt.Errorf("%w: header %q is not UTF-8", message.ErrEncode, name)
			}
			headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(v)})
		}
	}
	return headers, value, nil
}

func isStructured(contentType string) bool {
	return strings.HasPrefix(strings.ToLower(contentType), contentTypes)
}

// decode decodes a record: a CloudEvent in either mode, or plain data. Errors wrap message.ErrDecode.
func decode(rec *kgo.Record) (*message.RawMessage, error) {
	fields := make(map[string]any, len(rec.Headers)+1)
	for _, h := range rec.Headers {
		name := h.Key
		if strings.EqualFold(name, headerContentType) {
			name = headerContentType
		}
		if name == headerContentType || strings.HasPrefix(name, "ce_") {
			fields[name] = string(h.Value)
		}
	}
	contentType, _ := fields[headerContentType].(string)
	if fields[headerVersion] == nil && !isStructured(contentType) {
		return plain(rec, contentType), nil
	}
	if isStructured(contentType) { // takes precedence over other headers
		fields = map[string]any{headerContentType: contentType}
	}
	if rec.Value != nil {
		fields[fieldData] = string(rec.Value)
	}
	return stream.Unmarshal("", fields)
}

// plain returns a message with data and the attributes known from the record.
func plain(rec *kgo.Record, contentType string) *message.RawMessage {
	attrs := message.Attributes{message.AttrSpecVersion: message.SpecVersion, message.AttrType: rec.Topic}
	if contentType != "" {
		attrs[message.AttrDataContentType] = contentType
	}
	if key := string(rec.Key); key != "" && utf8.ValidString(key) {
		attrs[message.AttrSubject], attrs[message.AttrPartitionKey] = key, key
	}
	return message.NewRaw(rec.Value, attrs, nil)
}

// identify sets an id and a source that are the same for every delivery. Partition and offset alone would be ambiguous after the
// topic was deleted and created again.
func identify(attrs message.Attributes, rec *kgo.Record) {
	if attrs.ID() == "" {
		attrs[message.AttrID] = strconv.Itoa(int(rec.Partition)) + "-" + strconv.FormatInt(rec.Offset, 10) + "-" + strconv.FormatInt(rec.Timestamp.UnixMilli(), 10)
	}
	if attrs.Source() == "" {
		attrs[message.AttrSource] = sourceOf(rec.Topic)
	}
}
