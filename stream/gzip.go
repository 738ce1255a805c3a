package stream

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/luatx/luatx/message"
)

// Gzip is a Codec that compresses data. List it before a codec that encrypts.
type Gzip struct {
	// Level is a compression level of compress/gzip. Defaults to gzip.DefaultCompression.
	Level int
	// MinBytes is the size of the smallest data that Gzip compresses. Defaults to 256 bytes.
	MinBytes int
	// MaxBytes bounds the decompressed data, in bytes, so that a small entry cannot fill the memory. Defaults to 64 MiB.
	MaxBytes int
}

// Name implements Codec.
func (Gzip) Name() string { return "gzip" }

// Encode implements Codec.
func (g Gzip) Encode(data []byte, _ message.Attributes) ([]byte, error) {
	if len(data) < cmp.Or(g.MinBytes, 256) {
		return nil, ErrSkipCodec
	}
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, cmp.Or(g.Level, gzip.DefaultCompression))
	if err != nil {
		return nil, fmt.Errorf("Gzip.Level: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if buf.Len() >= len(data) {
		return nil, ErrSkipCodec
	}
	return buf.Bytes(), nil
}

// Decode implements Codec.
func (g Gzip) Decode(data []byte, _ message.Attributes) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(g.MaxBytes, defaultMaxBytes)
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(out) > limit {
		return nil, fmt.Errorf("more than the %d bytes that Gzip.MaxBytes allows", limit)
	}
	return out, nil
}
