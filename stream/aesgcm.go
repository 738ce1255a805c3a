package stream

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/luatx/luatx/internal/streamentry"
	"github.com/luatx/luatx/message"
)

// AttrDataKeyID is the attribute with the id of the key that encrypted the data of a message.
const AttrDataKeyID = "datakeyid"

// AESGCM is a Codec that encrypts data with AES-GCM. It writes a random nonce before the encrypted data. It binds the data
// to the attributes that identify, route and describe the message: id, source, type, subject, time, expirytime,
// partitionkey, destination, datacontenttype, dataschema, and the codecs that ran before. If one of them changes, the data
// cannot be decoded. The attributes themselves stay readable. A Subscriber accepts messages that were never encrypted,
// unless RejectPlaintext is set.
type AESGCM struct {
	// KeyID is the id of the key to encrypt with. A Subscriber needs none.
	KeyID string
	// Key returns the key with an id, of 16, 24 or 32 bytes. If it returns an error, the data cannot be encoded or decoded.
	// Keep an old key while entries encrypted with it exist. Replace a key before it has encrypted 2^32 messages.
	Key func(id string) ([]byte, error)
	// RejectPlaintext makes a Subscriber treat a message that is not encrypted, or has no data, as one that it cannot decode.
	// It makes a Publisher encrypt messages without data too; they arrive with empty data. Set it on both sides. Defaults to
	// false.
	RejectPlaintext bool
}

// required makes encode and decode require the codec.
func (c AESGCM) required() bool { return c.RejectPlaintext }

// Name implements Codec.
func (AESGCM) Name() string { return "aesgcm" }

// Encode implements Codec.
func (c AESGCM) Encode(data []byte, attrs message.Attributes) ([]byte, error) {
	if c.KeyID == "" {
		return nil, errors.New("AESGCM.KeyID is empty; name the key to encrypt with")
	}
	seal, err := c.cipher(c.KeyID)
	if err != nil {
		return nil, err
	}
	attrs[AttrDataKeyID] = c.KeyID
	return seal.Seal(nil, nil, data, bound(attrs)), nil
}

// Decode implements Codec.
func (c AESGCM) Decode(data []byte, attrs message.Attributes) ([]byte, error) {
	id, _ := attrs[AttrDataKeyID].(string)
	open, err := c.cipher(id)
	if err != nil {
		return nil, err
	}
	out, err := open.Open([]byte{}, nil, data, bound(attrs))
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	delete(attrs, AttrDataKeyID)
	return out, nil
}

func (c AESGCM) cipher(id string) (cipher.AEAD, error) {
	if c.Key == nil {
		return nil, errors.New("AESGCM.Key is nil; give a function that returns the keys")
	}
	key, err := c.Key(id)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", id, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// boundAttributes lists the attributes to which data is bound.
var boundAttributes = []string{
	message.AttrID, message.AttrSource, message.AttrType, message.AttrSubject, message.AttrTime, message.AttrExpiryTime,
	message.AttrPartitionKey, message.AttrDestination, message.AttrDataContentType, message.AttrDataSchema, AttrDataEncoding,
}

// bound returns the attributes to which data is bound, each as its length and text.
func bound(attrs message.Attributes) []byte {
	var out []byte
	for _, name := range boundAttributes {
		text := boundText(name, attrs[name])
		out = binary.BigEndian.AppendUint32(out, uint32(len(text))) //nolint:gosec // attributes are short
		out = append(out, text...)
	}
	return out
}

// boundText returns an attribute in a form that is the same before and after its way through a stream.
func boundText(name string, value any) string {
	if text, ok := value.(string); ok && streamentry.IsTime(name) {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			value = at
		}
	}
	if at, ok := value.(time.Time); ok {
		return at.UTC().Format(time.RFC3339Nano)
	}
	if value == nil {
		return ""
	}
	if text, err := streamentry.Text(name, value); err == nil {
		return text
	}
	return fmt.Sprint(value)
}
