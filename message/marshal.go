package message

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Marshaler encodes and decodes the data of messages.
type Marshaler interface {
	// Marshal encodes a value.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into the value that v points to.
	Unmarshal(data []byte, v any) error
	// ContentType returns the media type of the result of Marshal.
	ContentType() string
}

// JSONMarshaler is the Marshaler for application/json. It does not escape characters for HTML.
type JSONMarshaler struct{}

// Marshal implements Marshaler.
func (JSONMarshaler) Marshal(v any) ([]byte, error) {
	var w jsonWriter
	if err := w.value(v); err != nil {
		return nil, err
	}
	return w.buf, nil
}

// Unmarshal implements Marshaler.
func (JSONMarshaler) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// ContentType implements Marshaler.
func (JSONMarshaler) ContentType() string { return ContentTypeJSON }

// encodedData returns data that is already encoded, and false for other data.
func encodedData(data any) ([]byte, bool) {
	switch d := data.(type) {
	case []byte:
		return d, true
	case json.RawMessage:
		return d, true
	default:
		return nil, false
	}
}

// marshalData encodes data with a Marshaler and reports whether it did. Nil and encoded data stay unchanged.
func marshalData(m Marshaler, data any) (raw []byte, marshaled bool, err error) {
	if raw, encoded := encodedData(data); encoded || data == nil {
		return raw, false, nil
	}
	if raw, err = m.Marshal(data); err != nil {
		return nil, false, Permanent(fmt.Errorf("%w: data of type %T: %w", ErrEncode, data, err))
	}
	return raw, true, nil
}

// EncodeOutput returns an output of the handler of ctx as the surrounding Engine encodes it: a copy with the data and the content
// type of EngineConfig.Marshaler. Middlewares that store outputs call it. EncodeOutput returns out itself outside of an Engine,
// for data that is nil or already encoded, and for JSONMarshaler, because MarshalJSON writes JSON anyway. Errors wrap ErrEncode.
func EncodeOutput(ctx context.Context, out *Message) (*Message, error) {
	r, ok := ctx.Value(routeKey).(*route)
	if !ok || r.marshaler == nil {
		return out, nil
	}
	if _, isJSON := r.marshaler.(JSONMarshaler); isJSON {
		return out, nil
	}
	data, marshaled, err := marshalData(r.marshaler, out.Data)
	if err != nil || !marshaled {
		return out, err
	}
	encoded := Copy[any, any](out, data)
	encoded.Attributes[AttrDataContentType] = r.marshaler.ContentType()
	return encoded, nil
}

// dataAs returns the data of a message as a T: the data itself, the value that it points to, or decoded JSON. If there is no
// data, it returns the zero value. Errors are permanent and wrap ErrDecode.
func dataAs[T any](msg *Message) (T, error) {
	var out T
	switch d := msg.Data.(type) {
	case nil:
		return out, nil
	case T:
		return d, nil
	case *T:
		if d == nil {
			return out, nil
		}
		return *d, nil
	}
	raw, ok := encodedData(msg.Data)
	if !ok {
		return out, Permanent(fmt.Errorf("%w: the data is a %T, the handler takes a %T", ErrDecode, msg.Data, out))
	}
	switch target := any(&out).(type) {
	case *[]byte:
		*target = raw
		return out, nil
	case *json.RawMessage:
		*target = raw
		return out, nil
	}
	if len(raw) == 0 {
		return out, nil
	}
	if ct := msg.DataContentType(); !isJSON(ct) {
		return out, Permanent(fmt.Errorf("%w: data of content type %q into a %T: decode it before the handler", ErrDecode, ct, out))
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, Permanent(fmt.Errorf("%w: data into a %T: %w", ErrDecode, out, err))
	}
	return out, nil
}

// isJSON reports whether a content type means JSON. An empty one does.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media == ContentTypeJSON || media == "text/json" || strings.HasSuffix(media, "+json")
}
