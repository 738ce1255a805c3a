package stream

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/luatx/luatx/message"
)

// AttrDataKeyID names the key that the data of a message is encrypted with.
const AttrDataKeyID = "datakeyid"

// AESGCM is a Codec that encrypts data with AES-GCM, under a random nonce that stands before it. What was encrypted is
// bound to the message's id, source and type: it cannot be changed, nor passed off as another message's. The attributes
// themselves stay readable. A Subscriber takes messages that were never encrypted as they are.
type AESGCM struct {
	// KeyID is the id of the key to encrypt with; a Subscriber needs none.
	KeyID string
	// Key returns the key of an id, of 16, 24 or 32 bytes. Keep old keys for as long as entries have them. Replace a key
	// before it has encrypted 2^32 messages. What it has no key for counts as data that cannot be encoded or decoded.
	Key func(id string) ([]byte, error)
}

// Name implements Codec.
func (AESGCM) Name() string { return "aesgcm" }

// Encode implements Codec.
func (c AESGCM) Encode(data []byte, attrs message.Attributes) ([]byte, error) {
	if c.KeyID == "" {
		return nil, errors.New("AESGCM.KeyID is empty: name the key to encrypt with")
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
		return nil, errors.New("AESGCM.Key is nil: give a function that returns the keys")
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

// bound is what the data is bound to: each text with its length before it.
func bound(attrs message.Attributes) []byte {
	var out []byte
	for _, text := range []string{attrs.ID(), attrs.Source(), attrs.Type()} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text))) //nolint:gosec // attributes are short
		out = append(out, text...)
	}
	return out
}
