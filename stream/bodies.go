package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/luatx/luatx/message"
)

// AttrDataEncoding lists the codecs that the data of a message has gone through, separated by spaces, the first first.
const AttrDataEncoding = "dataencoding"

// Codec changes the data of messages on their way into a stream and back: compression, encryption, another body. A
// Publisher runs its codecs one after the other and names them in the attribute dataencoding; a Subscriber undoes those
// named, the last first. Messages without data go past them. Codecs are used by several goroutines at once.
type Codec interface {
	// Name is what the attribute says: letters, digits and - or _. It must never change.
	Name() string
	// Encode returns the data to write, or ErrSkipCodec to write it as it is. It may set attributes, for Decode to read.
	Encode(data []byte, attrs message.Attributes) ([]byte, error)
	// Decode returns the data as it was before Encode, and takes the attributes back that Encode has set.
	Decode(data []byte, attrs message.Attributes) ([]byte, error)
}

// ErrSkipCodec is returned by Codec.Encode where the data is better written as it is.
var ErrSkipCodec = errors.New("stream: this codec is skipped")

// checkCodecs refuses names that the attribute cannot hold, or cannot tell apart.
func checkCodecs(codecs []Codec) error {
	seen := map[string]bool{}
	for i, c := range codecs {
		if c == nil {
			return fmt.Errorf("codec %d is nil", i)
		}
		name := c.Name()
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || seen[name] {
			return fmt.Errorf("codec %d is called %q: give each a name of its own, of letters, digits, - and _", i, name)
		}
		seen[name] = true
	}
	return nil
}

// encode returns the message to write, which shares nothing that codecs change with msg.
func encode(codecs []Codec, msg *message.RawMessage) (*message.RawMessage, error) {
	if len(codecs) == 0 || msg.Data == nil {
		return msg, nil
	}
	out := message.Copy(msg, msg.Data)
	var names []string
	if v, _ := msg.Attributes[AttrDataEncoding].(string); v != "" {
		names = append(names, v) // of those who encoded it before
	}
	for _, c := range codecs {
		data, err := c.Encode(out.Data, out.Attributes)
		if errors.Is(err, ErrSkipCodec) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: codec %s: %w", message.ErrEncode, c.Name(), err)
		}
		out.Data = data
		names = append(names, c.Name())
	}
	if len(names) > 0 {
		out.Attributes[AttrDataEncoding] = strings.Join(names, " ")
	}
	return out, nil
}

// decode undoes what dataencoding says, of the codecs that are known; one that is not is an error.
func decode(codecs []Codec, msg *message.RawMessage) error {
	names, _ := msg.Attributes[AttrDataEncoding].(string)
	if len(codecs) == 0 || names == "" {
		return nil
	}
	for list := strings.Fields(names); len(list) > 0; list = list[:len(list)-1] {
		name := list[len(list)-1]
		c := find(codecs, name)
		if c == nil {
			return fmt.Errorf("%w: the data has gone through codec %q, which is not among SubscriberConfig.Codecs", message.ErrDecode, name)
		}
		data, err := c.Decode(msg.Data, msg.Attributes)
		if err != nil {
			return fmt.Errorf("%w: codec %s: %w", message.ErrDecode, name, err)
		}
		msg.Data = data
	}
	delete(msg.Attributes, AttrDataEncoding)
	return nil
}

func find(codecs []Codec, name string) Codec {
	for _, c := range codecs {
		if c.Name() == name {
			return c
		}
	}
	return nil
}
