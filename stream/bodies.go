package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/luatx/luatx/message"
)

// AttrDataEncoding is the attribute that lists the codecs of a message's data in the order in which they ran, separated by
// spaces.
const AttrDataEncoding = "dataencoding"

// Codec changes the data of messages when they are written to a stream, and restores it when they are read. Codecs compress
// data, encrypt it or store it elsewhere. A Publisher runs its codecs one after another and lists them in the attribute
// dataencoding. A Subscriber undoes the listed codecs in reverse order. Codecs skip messages without data. Several
// goroutines use a Codec at once.
type Codec interface {
	// Name is the codec's name in the attribute: letters, digits, - and _. It must never change.
	Name() string
	// Encode returns the data to write, or ErrSkipCodec to write the data unchanged. It may set attributes for Decode.
	Encode(data []byte, attrs message.Attributes) ([]byte, error)
	// Decode returns the data as it was before Encode, and removes the attributes that Encode set.
	Decode(data []byte, attrs message.Attributes) ([]byte, error)
}

// ErrSkipCodec is returned by Codec.Encode if it is better to write the data unchanged.
var ErrSkipCodec = errors.New("stream: this codec is skipped")

// checkCodecs returns an error for invalid or duplicate names.
func checkCodecs(codecs []Codec) error {
	if len(codecs) > maxEncodings {
		return fmt.Errorf("there are %d codecs: use %d at most", len(codecs), maxEncodings)
	}
	seen := map[string]bool{}
	for i, c := range codecs {
		if c == nil {
			return fmt.Errorf("codec %d is nil", i)
		}
		name := c.Name()
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || seen[name] {
			return fmt.Errorf("codec %d is called %q; give each a name of its own, of letters, digits, - and _", i, name)
		}
		seen[name] = true
	}
	return nil
}

// maxEncodings bounds the codecs of one message, such as compression and encryption.
const maxEncodings = 2

// required reports whether messages must pass through a codec.
func required(c Codec) bool {
	r, ok := c.(interface{ required() bool })
	return ok && r.required()
}

// encode returns the message to write. It shares nothing with msg that codecs change.
func encode(codecs []Codec, msg *message.RawMessage) (*message.RawMessage, error) {
	if len(codecs) == 0 || msg.Data == nil && !slices.ContainsFunc(codecs, required) {
		return msg, nil
	}
	out := message.Copy(msg, msg.Data)
	before, _ := msg.Attributes[AttrDataEncoding].(string) // codecs that ran before this Publisher
	names := strings.Fields(before)
	for _, c := range codecs {
		if out.Data == nil && !required(c) {
			continue
		}
		data, err := c.Encode(out.Data, out.Attributes)
		if errors.Is(err, ErrSkipCodec) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: codec %s: %w", message.ErrEncode, c.Name(), err)
		}
		out.Data = data
		if names = append(names, c.Name()); len(names) > maxEncodings {
			return nil, fmt.Errorf("%w: the data would go through %d codecs, %d are allowed", message.ErrEncode, len(names), maxEncodings)
		}
		setEncoding(out.Attributes, names)
	}
	return out, nil
}

// setEncoding sets the attribute that lists the codecs of the data.
func setEncoding(attrs message.Attributes, names []string) {
	if len(names) == 0 {
		delete(attrs, AttrDataEncoding)
		return
	}
	attrs[AttrDataEncoding] = strings.Join(names, " ")
}

// decode undoes the codecs that dataencoding lists, and reports whether there were any. It returns an error if a listed
// codec is missing from codecs, or if a required codec is not listed.
func decode(codecs []Codec, msg *message.RawMessage) (changed bool, err error) {
	if len(codecs) == 0 {
		return false, nil
	}
	text, _ := msg.Attributes[AttrDataEncoding].(string)
	names := strings.Fields(text)
	if len(names) > maxEncodings {
		return false, fmt.Errorf("%w: the data has gone through %d codecs, %d are allowed", message.ErrDecode, len(names), maxEncodings)
	}
	for _, c := range codecs {
		if required(c) && !slices.Contains(names, c.Name()) {
			return false, fmt.Errorf("%w: the data has not gone through codec %s, which is required", message.ErrDecode, c.Name())
		}
	}
	for left := names; len(left) > 0; {
		name := left[len(left)-1]
		left = left[:len(left)-1]
		at := slices.IndexFunc(codecs, func(c Codec) bool { return c.Name() == name })
		if at < 0 {
			return false, fmt.Errorf("%w: the data has gone through codec %q, which is not among SubscriberConfig.Codecs", message.ErrDecode, name)
		}
		setEncoding(msg.Attributes, left)
		data, err := codecs[at].Decode(msg.Data, msg.Attributes)
		if err != nil {
			return false, fmt.Errorf("%w: codec %s: %w", message.ErrDecode, name, err)
		}
		msg.Data = data
	}
	return len(names) > 0, nil
}
